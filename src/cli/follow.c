/*
 * One poll loop with back-pressure in both directions: while our reader does not accept output,
 * nothing is received; while the daemon does not accept input, nothing is read from stdin. Signals
 * arrive through a signalfd, so that none is lost between two system calls.
 */
#include "cli/follow.h"

#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/cli.h"
#include "cli/end.h"
#include "cli/output.h"
#include "cli/sink.h"
#include "cli/term.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

enum {
    FOLLOW_INPUT = 64 << 10,
    FOLLOW_STAMPED_MAX = (1 << 20) * STAMPS_GROWTH,
    FOLLOW_TEXT_MAX = (1 << 20) * RENDER_GROWTH + FOLLOW_STAMPED_MAX,
    FOLLOW_STATUS_PIPE = 128 + SIGPIPE,
    KEY_CTRL_P = 0x10,
    KEY_CTRL_Q = 0x11,
};
static const uint64_t again_usec = 2 * USEC_PER_SEC; /* a second Ctrl-C within this time kills */
static const uint64_t pipe_grace_usec = 2 * USEC_PER_SEC; /* time between SIGPIPE and SIGKILL */
static const uint64_t held_key_usec = 300 * USEC_PER_MSEC;
static const uint64_t resume_usec = 10 * USEC_PER_SEC;

struct follow {
    struct client_stream *s;
    const struct follow_options *o;
    struct sink sinks[3]; /* index: stream number */
    struct render_state states[3];
    struct sink *busy; /* sink that has not written all of data yet, or NULL */
    const char *data;
    size_t len;
    struct buf text;    /* rendered output; unused for raw output */
    struct buf stamped; /* output with times; unused without */
    int signals;        /* signalfd */
    char *input;        /* owned */
    bool input_open;
    bool held_key; /* a Ctrl-P waits for the next key */
    bool ended, closed, detached;
    bool pipe_broken; /* the reader of our stdout is gone */
    bool interrupted; /* by our own Ctrl-C; needs no message */
    uint64_t last_interrupt;
    struct deadline by; /* deadline of the held key or of the grace period */
};

static int follow_watch_signals(struct follow *f, struct err *err)
{
    static const int wanted[] = {SIGINT, SIGTERM, SIGQUIT, SIGHUP};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        struct sigaction old;

        /* Ignored signals stay ignored, as for nohup or a background job of a plain shell. */
        if (sigaction(wanted[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&set, wanted[i]);
    }
    if (f->o->tty)
        sigaddset(&set, SIGWINCH);
    signal(SIGPIPE, SIG_IGN);
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_sys(err, errno, "block signals");
    f->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return f->signals < 0 ? err_sys(err, errno, "make a signal descriptor") : 0;
}

/* The reader of our output is gone. The command gets SIGPIPE, as in a shell pipe, and is killed
 * after a grace period. */
static int follow_on_broken_pipe(struct follow *f, struct err *err)
{
    if (f->pipe_broken)
        return 0;
    f->pipe_broken = true;
    if (f->ended || f->o->reading)
        return 0;
    f->by = deadline_in(pipe_grace_usec);
    return stream_signal(f->s, SIGPIPE, err);
}

/* Writes the waiting data. Returns 0 when all is written, or when it would block (busy stays
 * set). */
static int follow_push(struct follow *f, struct err *err)
{
    int r = 0;

    while (f->busy && f->len) {
        ssize_t n = sink_write(f->busy, f->data, f->len);

        if (n == 0)
            return 0;
        if (n == -EPIPE || n == -ECONNRESET) {
            r = f->busy == &f->sinks[STREAM_STDOUT] ? follow_on_broken_pipe(f, err) : 0;
            break;
        }
        if (n < 0)
            return err_sys(err, (int)-n, "write to standard %s",
                           f->busy == &f->sinks[STREAM_STDOUT] ? "output" : "error");
        f->data += n;
        f->len -= (size_t)n;
    }
    f->busy = NULL;
    f->len = 0;
    return r < 0 ? r : 0;
}

static int follow_show(struct follow *f, int stream, const char *data, size_t len, struct err *err)
{
    if (stream == STREAM_STDOUT && f->pipe_broken)
        return 0;
    f->busy = &f->sinks[stream];
    f->data = data;
    f->len = len;
    return follow_push(f, err);
}

static int follow_show_text(struct follow *f, int stream, int r, struct err *err)
{
    if (r < 0)
        return err_set(err, ERR_LIMIT, "a piece of output is too large to display");
    return follow_show(f, stream, buf_data(&f->text), f->text.len, err);
}

static int follow_on_output(struct follow *f, const struct stream_event *ev, struct err *err)
{
    const char *data = ev->data;
    size_t len = ev->len;

    if (f->o->stamps) {
        buf_clear(&f->stamped);
        if (stamps_add(f->o->stamps, ev->stream - 1, ev->from, data, len, &f->stamped) < 0)
            return err_set(err, ERR_LIMIT, "a piece of output is too large to display");
        data = buf_data(&f->stamped);
        len = f->stamped.len;
    }
    if (f->o->mode == RENDER_RAW)
        return follow_show(f, ev->stream, data, len, err);
    buf_clear(&f->text);
    if (f->o->mode == RENDER_ESCAPED)
        return follow_show_text(f, ev->stream,
                                render_escaped(&f->states[ev->stream], data, len, &f->text), err);
    return follow_show_text(f, STREAM_STDOUT,
                            render_json(ev->stream == STREAM_STDOUT ? "stdout" : "stderr", ev->from,
                                        ev->data, ev->len, &f->text),
                            err);
}

/* Prints an event as a line of JSON. Takes the reference. */
static int follow_show_json(struct follow *f, json_t *taken, struct err *err)
{
    _cleanup_json_ json_t *doc = taken;

    buf_clear(&f->text);
    return follow_show_text(f, STREAM_STDOUT, render_line(doc, &f->text), err);
}

static bool follow_is_confined(const struct follow *f)
{
    const char *isolation = json_string_value(f->s->isolation);

    return isolation && STREQ(isolation, "confined");
}

/* Only on a terminal: a program that reads our stderr must get nothing but the command's. */
static void follow_warn(const struct follow *f)
{
    _cleanup_free_ char *names = NULL;
    const json_t *w;
    size_t i;

    if (!isatty(STDERR_FILENO))
        return;
    if (f->s->unenforced) {
        names = json_to_text(f->s->unenforced, false);
        output_note(false, "warning: %s cannot enforce these default limits: %s",
                    follow_is_confined(f) ? "isolation 'confined'" : "this machine", names);
    }
    json_array_foreach (f->s->warnings, i, w)
        if (json_is_string(w))
            output_note(false, "warning: %s", json_string_value(w));
}

static int follow_on_started(struct follow *f, struct err *err)
{
    json_t *doc;

    if (!f->o->json) {
        follow_warn(f);
        return 0;
    }
    doc = json_pack("{s:s, s:s, s:s}", "type", "started", "sandbox", f->s->sandbox, "exec",
                    f->s->exec);
    if (f->s->isolation)
        json_object_set(doc, "isolation", f->s->isolation);
    if (f->s->unenforced)
        json_object_set(doc, "unenforced", f->s->unenforced);
    if (f->s->warnings)
        json_object_set(doc, "warnings", f->s->warnings);
    return follow_show_json(f, doc, err);
}

static int follow_on_gap(struct follow *f, const struct stream_event *ev, struct err *err)
{
    const char *name = ev->stream == STREAM_STDOUT ? "stdout" : "stderr";

    if (f->o->json)
        return follow_show_json(f,
                                json_pack("{s:s, s:s, s:I, s:I}", "type", "gap", "stream", name,
                                          "from", (json_int_t)ev->from, "to", (json_int_t)ev->to),
                                err);
    output_note(
        false,
        "bytes %llu to %llu of %s are missing (removed from the journal: too large or too old)",
        (unsigned long long)ev->from, (unsigned long long)ev->to, name);
    return 0;
}

static int follow_on_end(struct follow *f, const struct stream_event *ev, struct err *err)
{
    json_t *doc;
    int r;

    f->ended = true;
    f->input_open = false;
    f->by = (struct deadline){DEADLINE_NEVER};
    if (!f->o->json)
        return 0;
    doc = json_pack("{s:s}", "type", "end");
    r = json_object_update(doc, (json_t *)ev->end);
    return r < 0 ? err_set(err, ERR_ENGINE, "the end record is not an object")
                 : follow_show_json(f, doc, err);
}

static int follow_on_event(struct follow *f, const struct stream_event *ev, struct err *err)
{
    switch (ev->type) {
    case STREAM_STARTED:
        return follow_on_started(f, err);
    case STREAM_OUTPUT:
        return follow_on_output(f, ev, err);
    case STREAM_GAP:
        return follow_on_gap(f, ev, err);
    case STREAM_END:
        return follow_on_end(f, ev, err);
    case STREAM_NOTHING:
        break;
    }
    return 0;
}

/* Handles received events until our reader blocks or none is left. */
static int follow_drain(struct follow *f, struct err *err)
{
    while (!f->busy && !f->ended) {
        struct stream_event ev;
        int r = stream_next(f->s, &ev, err);

        if (r < 0)
            return r;
        if (ev.type == STREAM_NOTHING)
            break;
        r = follow_on_event(f, &ev, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/*
 * The daemon is gone, but the command still runs. Input in flight may be lost: input from a pipe is
 * therefore ended, and input from a terminal continues.
 */
static int follow_on_lost(struct follow *f, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    struct deadline by = deadline_in(resume_usec);

    if (f->ended || f->detached) {
        f->closed = true;
        err_done(err);
        return 0;
    }
    if (!f->s->exec)
        return err_hint(err, "The command may not have been started.");
    if (stream_resume(f->s, &by, &why) == 0) {
        err_done(err);
        if (f->input_open && !f->o->tty) {
            f->input_open = false;
            output_note(f->o->json, "the daemon was restarted: the command's input ends here");
        }
        return 0;
    }
    err_move(err, &why);
    err_wrap(err, "lost the connection to the daemon");
    return err_hint(err, "The command may still run: follow it with 'ripcord logs -f %s %s'.",
                    f->s->sandbox, f->s->exec);
}

static int follow_detach(struct follow *f, struct err *err)
{
    f->detached = true;
    f->input_open = false;
    return stream_detach(f->s, err);
}

/* Sends input except the detach keys. A Ctrl-P is held back until the next key, or for a moment. */
static int follow_send_keys(struct follow *f, const char *data, size_t len, struct err *err)
{
    static const char ctrl_p = KEY_CTRL_P;
    const char *cut;
    int r;

    if (f->held_key && len) {
        f->held_key = false;
        f->by = (struct deadline){DEADLINE_NEVER};
        if (data[0] == KEY_CTRL_Q)
            return follow_detach(f, err);
        r = stream_stdin(f->s, &ctrl_p, 1, err);
        if (r < 0)
            return r;
    }
    cut = memmem(data, len, "\x10\x11", 2);
    if (cut) {
        r = cut > data ? stream_stdin(f->s, data, (size_t)(cut - data), err) : 0;
        return r < 0 ? r : follow_detach(f, err);
    }
    if (len && data[len - 1] == KEY_CTRL_P) {
        f->held_key = true;
        f->by = deadline_in(held_key_usec);
        len--;
    }
    return len ? stream_stdin(f->s, data, len, err) : 0;
}

static int follow_read_input(struct follow *f, struct err *err)
{
    ssize_t n = read(STDIN_FILENO, f->input, FOLLOW_INPUT);

    if (n < 0 && (errno == EINTR || errno == EAGAIN))
        return 0;
    if (n <= 0) {
        /* Treat a closed or unreadable input as its end. */
        f->input_open = false;
        return stream_stdin_eof(f->s, err);
    }
    if (f->o->tty)
        return follow_send_keys(f, f->input, (size_t)n, err);
    return stream_stdin(f->s, f->input, (size_t)n, err);
}

/* There is no command to send the signal to: end this program as the signal would. */
static void follow_end_by_signal(int sig)
{
    sigset_t set;

    term_restore();
    sigemptyset(&set);
    sigaddset(&set, sig);
    signal(sig, SIG_DFL);
    raise(sig);
    sigprocmask(SIG_UNBLOCK, &set, NULL);
}

static int follow_on_signal(struct follow *f, int sig, struct err *err)
{
    unsigned rows, cols;
    uint64_t now;
    bool again;

    if (sig == SIGWINCH)
        return term_size(&rows, &cols) ? stream_resize(f->s, rows, cols, err) : 0;
    if (f->o->reading || f->ended)
        follow_end_by_signal(sig);
    if (sig != SIGINT)
        return stream_signal(f->s, sig, err);
    now = time_mono();
    again = f->last_interrupt && now - f->last_interrupt < again_usec;
    f->interrupted = true;
    f->last_interrupt = now;
    return stream_signal(f->s, again ? SIGKILL : SIGINT, err);
}

static int follow_read_signals(struct follow *f, struct err *err)
{
    struct signalfd_siginfo si;

    while (read(f->signals, &si, sizeof(si)) == sizeof(si)) {
        int r = follow_on_signal(f, (int)si.ssi_signo, err);

        if (r < 0)
            return r;
    }
    return 0;
}

static int follow_on_time(struct follow *f, struct err *err)
{
    static const char ctrl_p = KEY_CTRL_P;

    f->by = (struct deadline){DEADLINE_NEVER};
    if (f->held_key) {
        f->held_key = false;
        return stream_stdin(f->s, &ctrl_p, 1, err);
    }
    return f->pipe_broken ? stream_signal(f->s, SIGKILL, err) : 0;
}

enum { AT_SOCKET, AT_SIGNALS, AT_INPUT, AT_SINK, AT_MAX };

static int follow_wait_events(struct follow *f, struct pollfd p[static AT_MAX], struct err *err)
{
    bool take = !f->busy, give = stream_sending(f->s);
    int r;

    p[AT_SOCKET] = (struct pollfd){.fd = take || give ? f->s->fd : -1,
                                   .events = (short)((take ? POLLIN : 0) | (give ? POLLOUT : 0))};
    p[AT_SIGNALS] = (struct pollfd){.fd = f->signals, .events = POLLIN};
    p[AT_INPUT] =
        (struct pollfd){.fd = f->input_open && !give ? STDIN_FILENO : -1, .events = POLLIN};
    p[AT_SINK] = (struct pollfd){.fd = f->busy ? sink_fd(f->busy) : -1, .events = POLLOUT};
    r = poll(p, AT_MAX, deadline_ms(&f->by));
    if (r < 0 && errno != EINTR)
        return err_sys(err, errno, "wait for events");
    if (r < 0)
        for (int i = 0; i < AT_MAX; i++)
            p[i].revents = 0;
    return 0;
}

static int follow_turn(struct follow *f, struct err *err)
{
    struct pollfd p[AT_MAX];
    int r = follow_wait_events(f, p, err);

    if (r < 0)
        return r;
    if (deadline_passed(&f->by) && (r = follow_on_time(f, err)) < 0)
        return r;
    if (p[AT_SIGNALS].revents && (r = follow_read_signals(f, err)) < 0)
        return r;
    if (p[AT_SINK].revents && (r = follow_push(f, err)) < 0)
        return r;
    if (p[AT_SOCKET].revents & POLLOUT && (r = stream_flush(f->s, err)) < 0)
        return r;
    if (!f->busy && p[AT_SOCKET].revents & (POLLIN | POLLHUP | POLLERR) &&
        stream_fill(f->s, err) < 0 && (r = follow_on_lost(f, err)) < 0)
        return r;
    if (p[AT_INPUT].revents && f->input_open && !stream_sending(f->s) &&
        (r = follow_read_input(f, err)) < 0)
        return r;
    return 0;
}

static bool follow_finished(const struct follow *f)
{
    if (f->o->reading && f->pipe_broken)
        return true;
    if (f->busy)
        return false;
    if (f->detached)
        return f->closed || !stream_sending(f->s);
    return f->ended;
}

static int follow_loop(struct follow *f, struct err *err)
{
    while (!follow_finished(f)) {
        int r = follow_drain(f, err);

        if (r < 0)
            return r;
        if (follow_finished(f))
            break;
        r = follow_turn(f, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* Prints an incomplete last character as escaped bytes. */
static void follow_finish_text(struct follow *f)
{
    for (int i = STREAM_STDOUT; i <= STREAM_STDERR && f->o->mode == RENDER_ESCAPED; i++) {
        buf_clear(&f->text);
        if (render_finish(&f->states[i], &f->text) == 0)
            (void)!write(f->sinks[i].fd, buf_data(&f->text), f->text.len);
    }
}

/* Whether the user's own Ctrl-C ended the command. That needs no message. */
static bool follow_was_own_interrupt(const struct follow *f, const json_t *end)
{
    const char *cause = json_text_of(end, "cause");

    return f->interrupted && cause && (STREQ(cause, "signaled") || STREQ(cause, "killed"));
}

static int follow_conclude(struct follow *f)
{
    _cleanup_free_ char *words = NULL, *stats = NULL, *packages = NULL;
    const json_t *end = f->s->end;

    term_restore();
    if (f->detached) {
        output_note(f->o->json, "detached; run 'ripcord attach %s %s' to attach again",
                    f->s->sandbox, f->s->exec);
        return 0;
    }
    if (f->pipe_broken)
        return FOLLOW_STATUS_PIPE;
    if (f->o->reading && !isatty(STDERR_FILENO))
        return 0; /* print the bytes of the command only */
    words = end_words(end, f->o->timeout_ms, f->o->idle_timeout_ms);
    if (words && !follow_was_own_interrupt(f, end))
        output_note(f->o->json, "%s", words);
    if (words && json_text_of(end, "hint"))
        output_hint(f->o->json, json_text_of(end, "hint"));
    if (f->o->stats) {
        stats = end_stats(end);
        output_note(f->o->json, "%s", stats);
        packages = end_packages(end);
        if (packages)
            output_note(f->o->json, "%s", packages);
    }
    return f->o->reading ? 0 : end_status(end);
}

static void follow_done(struct follow *f)
{
    term_restore();
    sink_done(&f->sinks[STREAM_STDOUT]);
    sink_done(&f->sinks[STREAM_STDERR]);
    fd_close(f->signals);
    buf_done(&f->text);
    buf_done(&f->stamped);
    free(f->input);
}

int follow(struct client_stream *s, const struct follow_options *o, struct err *err)
{
    _cleanup_(follow_done) struct follow f = {
        .s = s,
        .o = o,
        .sinks = {SINK_INIT(-1), SINK_INIT(STDOUT_FILENO), SINK_INIT(STDERR_FILENO)},
        .text = BUF_INIT(FOLLOW_TEXT_MAX),
        .stamped = BUF_INIT(FOLLOW_STAMPED_MAX),
        .signals = -1,
        .input_open = o->input,
        .by = {DEADLINE_NEVER},
    };
    int r = follow_watch_signals(&f, err);

    if (r < 0)
        return r;
    if (o->input)
        f.input = xmalloc(FOLLOW_INPUT);
    if (o->input && o->tty)
        term_raw();
    if (o->rejoin && o->tty && (r = follow_on_signal(&f, SIGWINCH, err)) < 0)
        return r;
    r = follow_loop(&f, err);
    if (r < 0)
        return r;
    follow_finish_text(&f);
    return follow_conclude(&f);
}

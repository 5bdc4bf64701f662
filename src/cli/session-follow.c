#include "cli/session-follow.h"

#include <errno.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include "cli/end.h"
#include "cli/output.h"
#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/parse.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"

enum {
    PIECE = 64 << 10,
    LINE_MAX_BYTES = 8 << 20, /* larger than any event */
    RETRY_USEC = 50000,
};
static const uint64_t resume_usec = 10 * USEC_PER_SEC;

struct following {
    struct cli *cli;
    const struct session_follow *o;
    struct client *client;
    uint64_t seq;
    struct buf line;  /* incomplete line */
    struct buf shown; /* escaped text for a terminal */
    json_t *end;      /* the exit event */
    int signals;      /* signalfd */
    bool cancelled;
    bool progress; /* an event arrived on this connection */
    bool final;    /* the failure is final: a retry would not help */
};

/* ---- events ---- */

static const char *session_follow_skip(const char *p, const char *end, const char *word)
{
    size_t len = strlen(word);

    return p && (size_t)(end - p) >= len && memcmp(p, word, len) == 0 ? p + len : NULL;
}

int session_event_parse(const char *line, size_t len, struct session_event *ret, struct err *err)
{
    const char *end = line + len, *p = session_follow_skip(line, end, "{\"seq\":"), *name;
    struct session_event e = {0};
    size_t n = 0;

    while (p && p < end && *p >= '0' && *p <= '9' && e.seq <= INT64_MAX / 10)
        e.seq = e.seq * 10 + (uint64_t)(*p++ - '0');
    name = p = session_follow_skip(p, end, ",\"stream\":\"");
    while (p && p < end && *p >= 'a' && *p <= 'z')
        p++;
    n = p ? (size_t)(p - name) : 0;
    p = session_follow_skip(p, end, "\",\"event\":");
    if (!p || !e.seq || n >= sizeof(e.stream) || end - p < 3 || end[-1] != '}')
        return err_set(err, ERR_ENGINE, "the daemon sent an invalid event");
    memcpy(e.stream, name, n);
    e.text = p;
    e.len = (size_t)(end - p) - 1;
    *ret = e;
    return 0;
}

static int session_follow_show(struct following *f, const char *data, size_t len, struct err *err)
{
    if (isatty(STDOUT_FILENO)) {
        buf_clear(&f->shown);
        if (text_escape(&f->shown, data, len) < 0)
            return err_set(err, ERR_LIMIT, "an event is too large to display");
        data = buf_data(&f->shown);
        len = f->shown.len;
    }
    if (fwrite(data, 1, len, stdout) < len || putchar('\n') == EOF)
        return err_sys(err, errno, "write to standard output");
    return 0;
}

static int session_follow_take_line(struct following *f, const char *line, size_t len,
                                    struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    struct session_event e;
    int r;

    if (session_follow_skip(line, line + len, "{\"error\":")) {
        f->final = true;
        r = json_parse("the daemon's response", line, len, &doc, err);
        return r < 0 ? r : json_to_err(doc, err);
    }
    r = session_event_parse(line, len, &e, err);
    if (r < 0 || e.seq <= f->seq)
        return r;
    r = f->cli->json ? session_follow_show(f, line, len, err)
                     : session_follow_show(f, e.text, e.len, err);
    if (r < 0)
        return r;
    f->seq = e.seq;
    f->progress = true;
    if (STREQ(e.stream, "session") &&
        session_follow_skip(e.text, e.text + e.len, "{\"type\":\"exit\""))
        return json_parse("the exit event", e.text, e.len, &f->end, err);
    return 0;
}

static int session_follow_take_bytes(struct following *f, const char *data, size_t len,
                                     struct err *err)
{
    int r;

    for (const char *nl; len && (nl = memchr(data, '\n', len));) {
        size_t n = (size_t)(nl - data);

        if (!f->line.len) { /* usual case: no copy */
            r = session_follow_take_line(f, data, n, err);
        } else {
            if (buf_append(&f->line, data, n) < 0)
                return err_set(err, ERR_LIMIT, "an event is longer than %d bytes", LINE_MAX_BYTES);
            r = session_follow_take_line(f, buf_data(&f->line), f->line.len, err);
            buf_clear(&f->line);
        }
        if (r < 0)
            return r;
        data += n + 1;
        len -= n + 1;
    }
    if (len && buf_append(&f->line, data, len) < 0)
        return err_set(err, ERR_LIMIT, "an event is longer than %d bytes", LINE_MAX_BYTES);
    return 0;
}

/* ---- signals ---- */

static int session_follow_watch_signals(struct following *f, struct err *err)
{
    static const int wanted[] = {SIGINT, SIGTERM};
    sigset_t set;

    sigemptyset(&set);
    for (size_t i = 0; i < ARRAY_SIZE(wanted); i++) {
        struct sigaction old;

        if (sigaction(wanted[i], NULL, &old) == 0 && old.sa_handler != SIG_IGN)
            sigaddset(&set, wanted[i]);
    }
    if (sigprocmask(SIG_BLOCK, &set, NULL) < 0)
        return err_sys(err, errno, "block signals");
    f->signals = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return f->signals < 0 ? err_sys(err, errno, "make a signal descriptor") : 0;
}

/* A session that has ended in the meantime is not an error. */
static int session_follow_cancel(struct following *f, struct err *err)
{
    _cleanup_free_ char *target =
        xasprintf("/v1/sandboxes/%s/sessions/%s/cancel", f->o->sandbox, f->o->session);
    _cleanup_json_ json_t *body = json_object();
    int r;

    if (f->cancelled)
        json_object_set_new(body, "grace_ms", json_integer(0));
    else
        output_note(f->cli->json, "cancelling the session; press Ctrl-C again to kill it");
    f->cancelled = true;
    client_disconnect(f->client);
    r = client_call(f->client, "POST", target, body, NULL, err);
    if (r == -ERR_CONFLICT) {
        err_done(err);
        r = 0;
    }
    return r;
}

/* Returns 1 when there was a signal. */
static int session_follow_take_signals(struct following *f, struct err *err)
{
    struct signalfd_siginfo si;
    int any = 0;

    while (read(f->signals, &si, sizeof(si)) == sizeof(si)) {
        int r = session_follow_cancel(f, err);

        if (r < 0)
            return r;
        any = 1;
    }
    return any;
}

/* ---- the connection ---- */

static int session_follow_connect_events(struct following *f, struct err *err)
{
    _cleanup_free_ char *target =
        xasprintf("/v1/sandboxes/%s/sessions/%s/events?follow=true&since=%llu", f->o->sandbox,
                  f->o->session, (unsigned long long)f->seq);
    int r;

    buf_clear(&f->line);
    f->progress = false;
    client_disconnect(f->client);
    r = client_ask(f->client, "GET", target, NULL, err);
    if (r < 0)
        return r;
    f->client->http.stop_fd = f->signals;
    return 0;
}

/* Reads events until the session ends. Returns -ERR_X when the connection is lost or broken. */
static int session_follow_read_events(struct following *f, struct err *err)
{
    static char piece[PIECE];

    while (!f->end) {
        ssize_t n = client_read(f->client, piece, sizeof(piece), err);
        int r;

        if (n == 0)
            return err_set(err, ERR_ENGINE,
                           "the daemon closed the stream before the session ended");
        if (n < 0)
            return (int)n;
        r = session_follow_take_bytes(f, piece, (size_t)n, err);
        if (r >= 0 && fflush(stdout) != 0)
            r = err_sys(err, errno, "write to standard output");
        if (r < 0) {
            f->final = true;
            return r;
        }
    }
    return 0;
}

/* Whether the daemon may be restarting, so that a retry can help. */
static bool session_follow_is_temporary(const struct err *err)
{
    return err->code == ERR_ENGINE || err->code == ERR_SYSTEM || err->code == ERR_TIMEOUT;
}

static int session_follow_fail(const struct following *f, struct err *err)
{
    err_wrap(err, "session '%s'", f->o->session);
    if (f->final || !session_follow_is_temporary(err))
        return -err->code;
    return err_hint(err,
                    "It may still run: attach with 'ripcord session %s --resume %s --since %llu'.",
                    f->o->sandbox, f->o->session, (unsigned long long)f->seq);
}

/* Called after a lost connection. Returns 1 to try again. */
static int session_follow_retry(struct following *f, struct deadline *by, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    int sig;

    if (f->final || !session_follow_is_temporary(err))
        return session_follow_fail(f, err);
    err_move(&why, err);
    sig = session_follow_take_signals(f, err);
    if (sig)
        return sig;
    if (f->progress)
        *by = deadline_in(resume_usec);
    else if (deadline_passed(by))
        return err_move(err, &why), session_follow_fail(f, err);
    else
        usleep(RETRY_USEC);
    return 1;
}

static int session_follow_run(struct following *f, struct err *err)
{
    struct deadline by = deadline_in(resume_usec);

    for (;;) {
        int r;

        if (session_follow_connect_events(f, err) >= 0 && session_follow_read_events(f, err) >= 0)
            return 0;
        r = session_follow_retry(f, &by, err);
        if (r < 0)
            return r;
    }
}

static int session_follow_conclude(const struct following *f)
{
    _cleanup_free_ char *words = end_words(f->end, f->o->timeout_ms, f->o->idle_timeout_ms);
    _cleanup_free_ char *stats = f->o->stats ? end_stats(f->end) : NULL;

    if (words && !f->cancelled)
        output_note(f->cli->json, "%s", words);
    if (words && json_text_of(f->end, "hint"))
        output_hint(f->cli->json, json_text_of(f->end, "hint"));
    if (stats)
        output_note(f->cli->json, "%s", stats);
    return end_status(f->end);
}

static void session_follow_done(struct following *f)
{
    json_decref(f->end);
    buf_done(&f->line);
    buf_done(&f->shown);
    fd_close(f->signals);
}

int session_follow(struct cli *cli, const struct session_follow *o, struct err *err)
{
    _cleanup_(session_follow_done) struct following f = {.cli = cli,
                                                         .o = o,
                                                         .seq = o->since,
                                                         .line = BUF_INIT(LINE_MAX_BYTES),
                                                         .shown = BUF_INIT(4 * LINE_MAX_BYTES),
                                                         .signals = -1};
    int r = cli_client(cli, &f.client, err);

    if (r < 0)
        return r;
    r = session_follow_watch_signals(&f, err);
    if (r < 0)
        return r;
    r = session_follow_run(&f, err);
    return r < 0 ? r : session_follow_conclude(&f);
}

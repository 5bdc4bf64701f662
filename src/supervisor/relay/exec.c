/*
 * Execs in a Docker sandbox. The guest inside is the command's parent, and sends everything about
 * the command as frames: output goes to the journals, stdin comes from a pipe that the daemon
 * writes to, EXIT is the end. We trust EXIT for the end record. loss.c handles a guest that ends
 * without EXIT.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "supervisor/relay/relay.h"

enum {
    INPUT_CHUNK = 32 << 10,
    INPUT_QUEUE = 64 << 10, /* frames not sent yet: more stdin would only delay KILL */
    END_OF_TRANSMISSION = 4,
};

void relay_exec_init(struct supervised_exec *base)
{
    struct relay_exec *x = relay_exec_of(base);

    x->input.fd = x->input_end = -1;
    x->kill_by = x->end_by = DEADLINE_NEVER;
}

static void relay_exec_close_input(struct relay_exec *x)
{
    source_close(x->exec.sup, &x->input);
    x->input_end = fd_close(x->input_end);
}

void relay_exec_over(struct supervised_exec *base)
{
    struct relay_exec *x = relay_exec_of(base);

    if (x->stream.relay)
        guest_stream_done(&x->stream);
    loss_forget(x);
    relay_exec_close_input(x);
    x->kill_by = x->end_by = DEADLINE_NEVER;
}

void relay_exec_done(struct supervised_exec *base)
{
    relay_exec_over(base);
}

/* ---- stdin ---- */

static void relay_exec_watch_input(struct relay_exec *x)
{
    bool room = x->credit && x->stream.out.len < INPUT_QUEUE && x->stream.state == GUEST_STREAM_UP;

    source_set(x->exec.sup, &x->input, room ? EPOLLIN : 0);
}

static void relay_exec_on_input(struct loop_source *src, uint32_t events _unused_)
{
    struct relay_exec *x = container_of(src, struct relay_exec, input);
    char *io = supervisor_io(x->exec.sup);
    ssize_t n = read(src->fd, io, MIN(x->credit, (uint32_t)INPUT_CHUNK));
    int r;

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0) {
        x->credit -= (uint32_t)n;
        r = guest_put(&x->stream.out, GUEST_STDIN, io, (size_t)n);
    } else {
        relay_exec_close_input(x);
        r = guest_put(&x->stream.out, GUEST_STDIN_EOF, NULL, 0);
    }
    if (r < 0) /* the queue is kept far below its maximum */
        relay_exec_close_input(x);
    guest_stream_flush(&x->stream);
    relay_exec_watch_input(x);
}

static int relay_exec_make_input(struct relay_exec *x, struct err *err)
{
    int ends[2];

    if (!(x->exec.spec.flags & (SUP_EXEC_STDIN | SUP_EXEC_TTY)))
        return 0;
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) < 0)
        return err_sys(err, errno, "make a pipe for exec '%s'", x->exec.id);
    x->input = (struct loop_source){.fd = ends[0], .ready = relay_exec_on_input};
    x->input_end = ends[1];
    return 0;
}

int relay_exec_terminal(struct supervised_exec *base)
{
    int fd = relay_exec_of(base)->input_end;

    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

/* A pipe ends when its holder closes it; a terminal gets an end-of-file character after all earlier
 * input. */
int relay_exec_stdin_close(struct supervised_exec *base, struct err *err _unused_)
{
    const char eot = END_OF_TRANSMISSION;
    int fd = relay_exec_of(base)->input_end;

    if (base->tty && fd >= 0)
        (void)!write(fd, &eot, 1);
    return 0;
}

/* ---- frames ---- */

static void relay_exec_set_user(struct strv_list *env, const char *user)
{
    static const char *const keys[] = {"USER", "LOGNAME"};
    bool root = STREQ(user, "root") || STREQ(user, "0") || strncmp(user, "0:", 2) == 0;

    strv_list_push(env, xasprintf("HOME=%s", root ? "/root" : "/home/agent"));
    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (user[0] < '0' || user[0] > '9')
            strv_list_push(env, xasprintf("%s=%s", keys[i], user));
}

static bool relay_exec_names_user(const char *variable)
{
    static const char *const keys[] = {"HOME=", "USER=", "LOGNAME="};

    for (size_t i = 0; i < ARRAY_SIZE(keys); i++)
        if (strncmp(variable, keys[i], strlen(keys[i])) == 0)
            return true;
    return false;
}

/* HOME, USER and LOGNAME of the sandbox belong to its user. Another user gets its own, as on the
 * native engine. */
static char **relay_exec_make_env(const struct relay_exec *x)
{
    const struct relay *r = x->stream.relay;
    bool other = !STREQ(x->user, r->plan.user);
    struct strv_list of_sandbox = {0};
    _cleanup_free_ char **env = NULL;
    char **copy;

    for (char **e = r->plan.env; e && *e; e++)
        if (!other || !relay_exec_names_user(*e))
            strv_list_push(&of_sandbox, xstrdup(*e));
    if (other)
        relay_exec_set_user(&of_sandbox, x->user);
    env = strv_env_merge((char *const *const[]){of_sandbox.v, x->exec.spec.env}, 2);
    copy = strv_copy(env);
    strv_free(of_sandbox.v);
    return copy;
}

static void relay_exec_add_secrets(struct guest_spec *spec, const struct handover *h)
{
    spec->secrets = h->n_secrets ? xcalloc(h->n_secrets, sizeof(*spec->secrets)) : NULL;
    spec->n_secrets = h->n_secrets;
    for (size_t i = 0; i < h->n_secrets; i++)
        spec->secrets[i] = (struct guest_secret){(char *)h->secrets[i].name,
                                                 (char *)h->secrets[i].value, h->secrets[i].len};
}

static void relay_exec_on_greeted(struct guest_stream *l)
{
    struct relay_exec *x = container_of(l, struct relay_exec, stream);
    const struct exec_spec *asked = &x->exec.spec;
    _cleanup_strv_ char **env = relay_exec_make_env(x);
    _cleanup_free_ char *workdir = exec_workdir(asked, l->relay->plan.workdir);
    _cleanup_err_ struct err err = ERR_INIT;
    struct guest_spec spec = {.flags = GUEST_SPEC_ENV_CLEAR, /* without the engine's HOSTNAME, … */
                              .argv = asked->argv,
                              .env = env,
                              .cwd = workdir,
                              .rows = asked->rows,
                              .cols = asked->cols};
    int r;

    x->exec.awaited = false;
    x->exec.entrusted = true;
    x->exec.started_mono = x->exec.last_output = time_mono();
    if (asked->flags & SUP_EXEC_STDIN)
        spec.flags |= GUEST_SPEC_STDIN;
    if (asked->flags & SUP_EXEC_TTY)
        spec.flags |= GUEST_SPEC_TTY;
    if (asked->flags & SUP_EXEC_MERGED)
        spec.flags |= GUEST_SPEC_MERGED;
    relay_exec_add_secrets(&spec, &x->exec.handover);
    r = guest_put_spec(&l->out, &spec, l->guest_minor, &err);
    free(spec.secrets); /* the strings belong to the handover */
    if (r < 0)
        exec_fail_start(&x->exec, &err);
    else
        guest_stream_flush(l);
}

static int relay_exec_on_started(struct relay_exec *x, const struct guest_frame *f)
{
    struct supervised_exec *base = &x->exec;

    base->pid = (int)guest_get_u32(f);
    x->credit = GUEST_CREDIT;
    exec_started(base, base->tty ? relay_exec_terminal(base) : TAKE_FD(x->input_end));
    relay_exec_watch_input(x);
    relay_memory_watch(relay_of(base->sup));
    return 1;
}

static int relay_exec_on_failed(struct relay_exec *x, const struct guest_frame *f)
{
    _cleanup_err_ struct err why = ERR_INIT;

    guest_get_failed(f, &why);
    exec_fail_start(&x->exec, &why);
    return 1;
}

static int relay_exec_on_ack(struct relay_exec *x, const struct guest_frame *f, struct err *err)
{
    uint32_t n = guest_get_u32(f);

    if (n > GUEST_CREDIT - x->credit)
        return err_set(err, ERR_INVALID, "the guest acknowledged more stdin than was sent");
    x->credit += n;
    relay_exec_watch_input(x);
    return 1;
}

/* The output of a command that is ending is stored completely, even if no reader follows. */
static int relay_exec_on_output(struct relay_exec *x, enum journal_stream which,
                                const struct guest_frame *f)
{
    struct supervised_exec *base = &x->exec;
    bool more = stream_feed(base, which, f->data, f->length);

    streams_notify(base);
    return more || base->killed || base->sup->state == SUP_STOPPING;
}

static int relay_exec_on_exit_frame(struct relay_exec *x, const struct guest_frame *f,
                                    struct err *err)
{
    struct supervised_exec *base = &x->exec;
    int r = guest_get_exit(f, &x->exit, err);

    if (r < 0)
        return r;
    x->exit_known = true;
    base->wait_status = (int)x->exit.status;
    base->fed = false;
    guest_stream_close(&x->stream);
    exec_main_ended(base);
    return 1;
}

static int relay_exec_on_frame(struct guest_stream *l, const struct guest_frame *f, struct err *err)
{
    struct relay_exec *x = container_of(l, struct relay_exec, stream);
    bool running = x->exec.state == EXEC_RUNNING;
    unsigned type = f->type;

    if (!running && type == GUEST_STARTED)
        return relay_exec_on_started(x, f);
    if (!running && type == GUEST_FAILED)
        return relay_exec_on_failed(x, f);
    if (running && type == GUEST_STDIN_ACK)
        return relay_exec_on_ack(x, f, err);
    if (running && type == GUEST_STDOUT)
        return relay_exec_on_output(x, JOURNAL_STDOUT, f);
    if (running && type == GUEST_STDERR)
        return relay_exec_on_output(x, JOURNAL_STDERR, f);
    if (running && type == GUEST_EXIT)
        return relay_exec_on_exit_frame(x, f, err);
    if (running && type == GUEST_STDIN_CLOSED) {
        relay_exec_close_input(x);
        return 1;
    }
    return err_set(err, ERR_INVALID, "the guest sent frame 0x%02x out of order", type);
}

static void relay_exec_on_drained(struct guest_stream *l)
{
    relay_exec_watch_input(container_of(l, struct relay_exec, stream));
}

/* Before RUN was sent, no command exists inside: only the reason must be reported. */
static void relay_exec_on_ended(struct guest_stream *l, struct err *err)
{
    struct relay_exec *x = container_of(l, struct relay_exec, stream);

    if (x->exec.state == EXEC_STARTING && !l->guest_pid)
        exec_fail_start(&x->exec, err);
    else
        loss_begin(x, err);
}

static const struct guest_stream_ops exec_stream_ops = {
    .greeted = relay_exec_on_greeted,
    .frame = relay_exec_on_frame,
    .drained = relay_exec_on_drained,
    .ended = relay_exec_on_ended,
};

void relay_exec_attach(struct relay_exec *x, struct relay *r)
{
    const struct exec_spec *spec = &x->exec.spec;

    snprintf(x->user, sizeof(x->user), "%s", spec->user ? spec->user : r->plan.user);
    x->exec.tty = spec->flags & SUP_EXEC_TTY;
    x->exec.fed = true;
    x->exec.awaited = true;
    guest_stream_init(&x->stream, r, &exec_stream_ops);
}

int relay_exec_launch(struct supervised_exec *base, struct err *err)
{
    static const char *const args[] = {"exec", NULL};
    struct relay_exec *x = relay_exec_of(base);
    int n = relay_exec_make_input(x, err);

    if (n < 0)
        return n;
    relay_exec_attach(x, relay_of(base->sup));
    guest_stream_open(&x->stream, x->user, args);
    return 0;
}

void relay_exec_readable(struct supervised_exec *base)
{
    guest_stream_resume(&relay_exec_of(base)->stream);
}

/* ---- requests ---- */

int relay_exec_signal(struct supervised_exec *base, int sig, struct err *err)
{
    struct guest_stream *l = &relay_exec_of(base)->stream;

    if (l->state != GUEST_STREAM_UP)
        return 0; /* the command is already ending */
    if (guest_put_signal(&l->out, sig) < 0)
        return err_set(err, ERR_LIMIT, "exec '%s': too many signals are waiting", base->id);
    guest_stream_flush(l);
    return 0;
}

int relay_exec_resize(struct supervised_exec *base, uint16_t rows, uint16_t cols, struct err *err)
{
    struct guest_stream *l = &relay_exec_of(base)->stream;

    if (l->state != GUEST_STREAM_UP)
        return 0;
    if (guest_put_resize(&l->out, rows, cols) < 0)
        return err_set(err, ERR_LIMIT, "exec '%s': too many terminal sizes are waiting", base->id);
    guest_stream_flush(l);
    return 0;
}

/* A frozen guest reads KILL when it is thawed; its time to answer begins then. */
static void relay_exec_await_end(struct relay_exec *x)
{
    if (x->kill_by == DEADLINE_NEVER && x->exec.sup->state != SUP_PAUSED)
        x->kill_by = time_mono() + RELAY_KILL_TIMEOUT;
}

void relay_exec_kill(struct supervised_exec *base)
{
    struct relay_exec *x = relay_exec_of(base);
    struct guest_stream *l = &x->stream;
    bool alone = l->relay->guest_streams == l && !l->next;

    if (l->state == GUEST_STREAM_OPENING || l->state == GUEST_STREAM_GREETING) {
        _cleanup_err_ struct err err = ERR_INIT;

        err_set(&err, ERR_ENGINE, "the command was ended (%s) before the engine started it",
                end_cause_name(base->kill_cause));
        exec_fail_start(base, &err);
        return;
    }
    if (l->state != GUEST_STREAM_UP)
        return;
    if (guest_put_kill(&l->out, alone ? GUEST_KILL_ALONE : 0) >= 0)
        guest_stream_flush(l);
    relay_exec_await_end(x);
    guest_stream_resume(l);
}

/* ---- the record ---- */

bool relay_exec_has_survivors(const struct supervised_exec *base _unused_)
{
    return false; /* the guest has already waited for them */
}

static uint64_t relay_exec_known(uint64_t v)
{
    return v == GUEST_UNKNOWN ? 0 : v;
}

static uint64_t relay_exec_risen(uint64_t before, uint64_t after)
{
    return before != GUEST_UNKNOWN && after != GUEST_UNKNOWN && after > before ? after - before : 0;
}

static void relay_exec_fill_oom(struct end_record *rec)
{
    char limit[FORMAT_MAX];

    rec->oom_kills = 1;
    format_size(rec->memory_limit, limit);
    snprintf(
        rec->message, sizeof(rec->message),
        "out of memory: the sandbox ended at its limit of %s, because its runtime has a kernel "
        "of its own",
        limit);
}

/*
 * The counters belong to the container. Refused forks count for an exec only if it ran alone; so
 * does the memory's peak, if it rose meanwhile.
 */
void relay_exec_fill(const struct supervised_exec *base, struct end_record *rec)
{
    const struct relay_exec *x = container_of(base, const struct relay_exec, exec);
    const struct relay *r = x->stream.relay;
    const struct guest_exit *e = &x->exit;

    rec->memory_limit = r->plan.unenforced & LIMIT_MEMORY ? 0 : r->plan.memory;
    if (!x->exit_known) {
        if (r->oom)
            relay_exec_fill_oom(rec);
        return;
    }
    rec->drained = e->flags & GUEST_EXIT_DRAINED;
    rec->cpu_usec = relay_exec_known(e->cpu_usec);
    rec->io_read = relay_exec_known(e->io_read);
    rec->io_write = relay_exec_known(e->io_write);
    rec->oom_kills = relay_exec_risen(e->oom_kills_before, e->oom_kills);
    rec->memory_peak = relay_exec_known(e->max_rss);
    if (base->alone && relay_exec_risen(e->memory_peak_before, e->memory_peak))
        rec->memory_peak = e->memory_peak;
    if (base->alone)
        rec->pids_denied = relay_exec_risen(e->pids_denied_before, e->pids_denied);
    if ((e->stdout_bytes != rec->stdout_bytes || e->stderr_bytes != rec->stderr_bytes) &&
        !*rec->message)
        snprintf(rec->message, sizeof(rec->message),
                 "output was lost (the guest sent %llu bytes of stdout and %llu of stderr, fewer "
                 "or more arrived)",
                 (unsigned long long)e->stdout_bytes, (unsigned long long)e->stderr_bytes);
}

/* ---- time ---- */

uint64_t relay_execs_next(const struct relay *r)
{
    uint64_t at = DEADLINE_NEVER;

    for (struct supervised_exec *base = r->sup.execs; base; base = base->next)
        at = MIN(at, MIN(relay_exec_of(base)->kill_by, relay_exec_of(base)->end_by));
    return at;
}

static void relay_exec_expire(struct relay_exec *x, uint64_t now)
{
    if (now >= x->end_by) {
        x->end_by = DEADLINE_NEVER;
        guest_stream_close(&x->stream);
        loss_forget(x); /* the engine's answer is not needed any more */
        loss_begin(x, NULL);
    } else if (now >= x->kill_by) {
        x->kill_by = DEADLINE_NEVER;
        guest_stream_close(&x->stream);
        loss_begin(x, NULL);
    }
}

void relay_execs_expire(struct relay *r, uint64_t now)
{
    for (struct supervised_exec *base = r->sup.execs; base; base = base->next)
        if (exec_is_live(base))
            relay_exec_expire(relay_exec_of(base), now);
}

void relay_execs_thawed(struct relay *r)
{
    for (struct supervised_exec *base = r->sup.execs; base; base = base->next)
        if (exec_is_live(base) && base->killed)
            relay_exec_await_end(relay_exec_of(base));
}

void relay_execs_gone(struct relay *r)
{
    for (struct supervised_exec *base = r->sup.execs; base; base = base->next)
        if (exec_is_live(base))
            relay_exec_of(base)->end_by = time_mono() + RELAY_END_TIMEOUT;
}

void relay_execs_lose(struct relay *r, const struct err *why)
{
    for (struct supervised_exec *base = r->sup.execs; base; base = base->next)
        if (base->state == EXEC_STARTING)
            exec_fail_start(base, why);
        else if (exec_is_live(base))
            exec_lose(base, why);
}

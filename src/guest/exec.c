/*
 * `guest exec`: one command, its streams and its end, in one poll loop. The steps: SPEC… and RUN
 * arrive; the guest forks; the status pipe reports that the command runs; streams flow; the main
 * process is reaped; both pipes are drained, or the grace for daemonised children is over; EXIT is
 * sent.
 *
 * Then the guest stays as long as it has children or one of their pipes is open, as the shim does
 * on the native engine. The children keep their parent, and their output is read and dropped.
 */
#include <errno.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "guest/child.h"
#include "guest/counters.h"
#include "guest/guest-conn.h"
#include "guest/modes.h"
#include "guest/proc-tree.h"
#include "guest/secrets.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/os/pty.h"

enum {
    DRAIN_GRACE_USEC = 2000000, /* a daemonised child holds a pipe and may still write */
    DRAIN_STRAY_USEC = 100000,  /* no process of the exec is left, but another one has its pipe */
    KILL_PAUSE_NSEC = 1000000,
    KILL_OUTRUN = 50,      /* scans before every process is killed, if that is allowed */
    KILL_GIVE_UP = 10000,  /* scans after the main process has gone */
    FORGET_PAUSE_MS = 100, /* between two reads of output that is dropped */
};

enum guest_exec_state {
    STATE_SPEC,     /* waits for RUN */
    STATE_STARTING, /* the status pipe has not ended */
    STATE_RUNNING,
    STATE_DRAINING, /* the main process has ended, a pipe is still open */
    STATE_REPORTED, /* EXIT or FAILED is queued */
};

struct guest_output {
    int fd;
    enum guest_type type;
    uint64_t bytes; /* sent */
    uint64_t owed;  /* bytes in the pipe when the main process ended: they belong to its output */
};

struct guest_exec {
    struct guest_conn conn;
    enum guest_exec_state state;
    struct buf fields; /* of the spec, until RUN */
    struct guest_spec spec;
    struct guest_child child;
    struct guest_output streams[2];
    struct buf pending; /* for the command's stdin */
    uint32_t to_ack;    /* bytes that the command took and we have not acknowledged */
    bool in_eof;        /* no more stdin follows */
    int signals;        /* signalfd: SIGCHLD */
    bool waited;        /* the main process was waited for, with this result: */
    int wait_status;
    bool has_children;
    struct deadline drain_by;
    struct guest_counters before;
    char *secrets; /* the folder of the secrets while the command runs, or NULL */
};

/* ---- children ---- */

/* Reaps all children that have ended: the command and orphans of its tree. */
static void guest_exec_reap(struct guest_exec *x)
{
    int status;
    pid_t pid;

    while ((pid = waitpid(-1, &status, WNOHANG | __WALL)) > 0 || (pid < 0 && errno == EINTR))
        if (pid == x->child.pid) {
            x->waited = true;
            x->wait_status = status;
        }
    x->has_children = pid == 0;
}

static void guest_exec_kill_all(struct guest_exec *x, bool alone)
{
    const struct timespec pause = {.tv_nsec = KILL_PAUSE_NSEC};

    for (unsigned i = 0; !x->waited || i < KILL_GIVE_UP; i++) {
        if (!proc_tree_kill_own() && !x->waited)
            kill(-x->child.pid, SIGKILL); /* at least the command's own process group */
        if (alone && i >= KILL_OUTRUN)
            proc_tree_kill_everybody();
        guest_exec_reap(x);
        if (!x->has_children)
            return;
        nanosleep(&pause, NULL);
    }
}

static void guest_exec_take_signals(struct guest_exec *x)
{
    struct signalfd_siginfo si;

    while (read(x->signals, &si, sizeof(si)) == (ssize_t)sizeof(si))
        ;
    guest_exec_reap(x);
}

/* ---- starting ---- */

/* Called also before FAILED is sent: our last frame must come after the end of all processes. */
static void guest_exec_drop_secrets(struct guest_exec *x)
{
    secrets_remove(&x->spec, x->secrets);
    free(TAKE_PTR(x->secrets));
}

static void guest_exec_send_failed(struct guest_exec *x, const struct err *why)
{
    guest_exec_drop_secrets(x);
    guest_conn_queued(&x->conn, guest_put_failed(&x->conn.out, why));
    x->state = STATE_REPORTED;
}

static int guest_exec_start_child(struct guest_exec *x, struct err *err)
{
    _cleanup_strv_ char **env = NULL;
    int r;

    r = guest_get_spec(&x->fields, &x->spec, err);
    explicit_bzero(buf_data(&x->fields), x->fields.len); /* they hold the secrets */
    buf_done(&x->fields);
    if (r < 0)
        return r;
    r = guest_check_user(err);
    if (r < 0)
        return r;
    counters_read(&x->before);
    r = secrets_write(&x->spec, &x->secrets, err);
    if (r < 0)
        return r;
    env = child_env(&x->spec, x->secrets);
    return child_start(&x->spec, env, &x->child, err);
}

static void guest_exec_start(struct guest_exec *x)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (guest_exec_start_child(x, &err) < 0) {
        guest_exec_send_failed(x, &err);
        return;
    }
    x->state = STATE_STARTING;
    x->has_children = true;
    x->streams[0].fd = x->child.out;
    x->streams[1].fd = x->child.err;
}

/* ---- stdin ---- */

static bool guest_exec_is_tty(const struct guest_exec *x)
{
    return x->spec.flags & GUEST_SPEC_TTY;
}

static void guest_exec_taken(struct guest_exec *x, size_t n)
{
    buf_consume(&x->pending, n);
    x->to_ack += (uint32_t)n;
}

/* Several small amounts become one ACK while the relay does not read. */
static void guest_exec_acknowledge(struct guest_exec *x)
{
    if (x->to_ack && guest_conn_has_room(&x->conn) && x->state != STATE_REPORTED) {
        guest_conn_queued(&x->conn, guest_put_u32(&x->conn.out, GUEST_STDIN_ACK, x->to_ack));
        x->to_ack = 0;
    }
}

/* The command has closed its stdin, or all input is written. */
static void guest_exec_close_stdin(struct guest_exec *x, bool by_command)
{
    if (x->child.in >= 0 && by_command)
        guest_conn_queued(&x->conn, guest_put(&x->conn.out, GUEST_STDIN_CLOSED, NULL, 0));
    x->child.in = fd_close(x->child.in);
    guest_exec_taken(x, x->pending.len);
}

static void guest_exec_feed_stdin(struct guest_exec *x)
{
    ssize_t n = 0;

    if (x->child.in >= 0 && x->pending.len)
        n = write(x->child.in, buf_data(&x->pending), x->pending.len);
    if (n > 0)
        guest_exec_taken(x, (size_t)n);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        guest_exec_close_stdin(x, true);
    else if (x->child.in < 0 || (x->in_eof && !x->pending.len))
        guest_exec_close_stdin(x, false);
}

/* The guest lives as long as the command: it does not keep the memory of a large one. */
static void guest_exec_forget_command(struct guest_exec *x)
{
    x->spec.argv = strv_free(x->spec.argv);
    x->spec.env = strv_free(x->spec.env);
    malloc_trim(0);
}

/* The status pipe has ended, or holds the error. */
static void guest_exec_resolve_start(struct guest_exec *x)
{
    _cleanup_err_ struct err err = ERR_INIT;
    int r = child_status(&x->child, &x->spec, &err);

    if (r == 0)
        return;
    x->child.status = fd_close(x->child.status);
    if (r < 0) {
        for (size_t i = 0; i < ARRAY_SIZE(x->streams); i++)
            x->streams[i].fd = fd_close(x->streams[i].fd);
        guest_exec_send_failed(x, &err);
        return;
    }
    guest_exec_forget_command(x);
    x->state = STATE_RUNNING;
    guest_conn_queued(&x->conn, guest_put_u32(&x->conn.out, GUEST_STARTED, (uint32_t)x->child.pid));
    guest_exec_feed_stdin(x); /* input that has arrived meanwhile, or its end */
}

/* ---- frames from the relay ---- */

/* A relay that sends more than the credit breaks the protocol. STDIN_EOF means nothing to a
 * terminal. */
static bool guest_exec_take_stdin(struct guest_exec *x, const struct guest_frame *f)
{
    if (x->state == STATE_SPEC || x->in_eof)
        return false;
    if (f->type == GUEST_STDIN_EOF)
        x->in_eof = !guest_exec_is_tty(x);
    else if (buf_append(&x->pending, f->data, f->length) < 0)
        return false;
    if (x->state != STATE_STARTING)
        guest_exec_feed_stdin(x);
    return true;
}

static void guest_exec_take_kill(struct guest_exec *x, const struct guest_frame *f)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (x->state != STATE_SPEC) {
        guest_exec_kill_all(x, guest_get_kill(f) & GUEST_KILL_ALONE);
        return;
    }
    err_set(&err, ERR_CONFLICT, "the command was killed before it started");
    guest_exec_send_failed(x, &err);
}

static bool guest_exec_take_signal(const struct guest_exec *x, const struct guest_frame *f)
{
    int sig;

    if (guest_get_signal(f, &sig, NULL) < 0)
        return false;
    if (x->child.pid > 0 && !x->waited) /* until it is reaped, the pid belongs to the command */
        kill(x->child.pid, sig);
    return true;
}

static void guest_exec_take_resize(const struct guest_exec *x, const struct guest_frame *f)
{
    uint16_t rows, cols;

    guest_get_resize(f, &rows, &cols);
    if (guest_exec_is_tty(x) && x->child.in >= 0)
        (void)pty_resize(x->child.in, rows, cols, NULL);
}

static bool guest_exec_take_frame(struct guest_exec *x, const struct guest_frame *f)
{
    switch ((unsigned)f->type) {
    case GUEST_SPEC:
        return x->state == STATE_SPEC && guest_collect_spec(&x->fields, f, NULL) >= 0;
    case GUEST_RUN:
        if (x->state != STATE_SPEC)
            return false;
        guest_exec_start(x);
        return true;
    case GUEST_STDIN:
    case GUEST_STDIN_EOF:
        return guest_exec_take_stdin(x, f);
    case GUEST_SIGNAL:
        return guest_exec_take_signal(x, f);
    case GUEST_RESIZE:
        guest_exec_take_resize(x, f);
        return true;
    case GUEST_KILL:
        guest_exec_take_kill(x, f);
        return true;
    default:
        return false;
    }
}

static void guest_exec_listen_to_relay(struct guest_exec *x)
{
    struct guest_frame f;
    int r;

    if (!guest_conn_read(&x->conn))
        x->conn.gone = true;
    while (!x->conn.gone && x->state != STATE_REPORTED && (r = guest_conn_next(&x->conn, &f, NULL)))
        if (r < 0 || !guest_exec_take_frame(x, &f))
            x->conn.gone = true;
}

/* ---- output and the end ---- */

/* A terminal ends with EIO. */
static void guest_exec_pass_output(struct guest_exec *x, struct guest_output *s)
{
    ssize_t n = guest_conn_forward(&x->conn, s->type, s->fd);

    if (n == -EAGAIN || n == -EINTR)
        return;
    if (n <= 0) {
        s->fd = fd_close(s->fd);
        s->owed = 0;
        return;
    }
    s->bytes += (uint64_t)n;
    s->owed -= MIN(s->owed, (uint64_t)n);
}

static bool guest_exec_drained(const struct guest_exec *x)
{
    return x->streams[0].fd < 0 && x->streams[1].fd < 0;
}

static uint64_t guest_exec_unread(int fd)
{
    int n = 0;

    return fd >= 0 && ioctl(fd, FIONREAD, &n) == 0 && n > 0 ? (uint64_t)n : 0;
}

/* From now on only a daemonised child may hold the pipes open. The bytes that the command itself
 * has written are read completely, even if the relay is slow. */
static void guest_exec_begin_drain(struct guest_exec *x)
{
    x->state = STATE_DRAINING;
    x->drain_by = deadline_in(x->has_children ? DRAIN_GRACE_USEC : DRAIN_STRAY_USEC);
    for (size_t i = 0; i < ARRAY_SIZE(x->streams); i++)
        x->streams[i].owed = guest_exec_unread(x->streams[i].fd);
}

static uint64_t guest_exec_timeval_usec(const struct timeval *tv)
{
    return (uint64_t)tv->tv_sec * USEC_PER_SEC + (uint64_t)tv->tv_usec;
}

static void guest_exec_send_exit(struct guest_exec *x)
{
    struct guest_counters now;
    struct rusage ru = {0};
    struct guest_exit e;

    guest_exec_drop_secrets(x);
    counters_read(&now);
    getrusage(RUSAGE_CHILDREN, &ru);
    e = (struct guest_exit){
        .status = (uint32_t)x->wait_status,
        .flags = guest_exec_drained(x) ? GUEST_EXIT_DRAINED : 0,
        .stdout_bytes = x->streams[0].bytes,
        .stderr_bytes = x->streams[1].bytes,
        .cpu_usec = guest_exec_timeval_usec(&ru.ru_utime) + guest_exec_timeval_usec(&ru.ru_stime),
        .max_rss = (uint64_t)ru.ru_maxrss * 1024,
        .io_read = (uint64_t)ru.ru_inblock * 512,
        .io_write = (uint64_t)ru.ru_oublock * 512,
        .memory_peak_before = x->before.memory_peak,
        .memory_peak = now.memory_peak,
        .memory_limit = now.memory_limit,
        .oom_kills_before = x->before.oom_kills,
        .oom_kills = now.oom_kills,
        .pids_denied_before = x->before.pids_denied,
        .pids_denied = now.pids_denied,
    };
    guest_conn_queued(&x->conn, guest_put_exit(&x->conn.out, &e));
    x->state = STATE_REPORTED;
}

/* An empty pipe is enough, because another process may have read from it. */
static bool guest_exec_owes(const struct guest_output *s)
{
    return s->owed && guest_exec_unread(s->fd);
}

static void guest_exec_advance(struct guest_exec *x)
{
    if (x->state == STATE_RUNNING && x->waited)
        guest_exec_begin_drain(x);
    if (x->state != STATE_DRAINING)
        return;
    if (guest_exec_drained(x) ||
        (deadline_passed(&x->drain_by) && !guest_exec_owes(&x->streams[0]) &&
         !guest_exec_owes(&x->streams[1])))
        guest_exec_send_exit(x);
}

/* ---- the loop ---- */

enum { P_IN, P_OUT, P_SIGNALS, P_STATUS, P_STDIN, P_STREAM, P_COUNT = P_STREAM + 2 };

/* Descriptors without wanted events are not polled, because a hang-up would wake us for ever. A
 * hang-up of the relay is the end, even if no more frames are wanted. */
static void guest_exec_fill_polls(const struct guest_exec *x, struct pollfd polls[static P_COUNT])
{
    bool flows = x->state == STATE_RUNNING || x->state == STATE_DRAINING;

    polls[P_IN] = (struct pollfd){.fd = GUEST_CONN_IN,
                                  .events = (short)(x->state == STATE_REPORTED ? 0 : POLLIN)};
    polls[P_OUT] =
        (struct pollfd){.fd = GUEST_CONN_OUT, .events = (short)(x->conn.out.len ? POLLOUT : 0)};
    polls[P_SIGNALS] = (struct pollfd){.fd = x->signals, .events = POLLIN};
    polls[P_STATUS] = (struct pollfd){.fd = x->child.status, .events = POLLIN};
    polls[P_STDIN] =
        (struct pollfd){.fd = flows && (x->pending.len || !guest_exec_is_tty(x)) ? x->child.in : -1,
                        .events = (short)(x->pending.len ? POLLOUT : 0)};
    for (size_t i = 0; i < ARRAY_SIZE(x->streams); i++)
        polls[P_STREAM + i] = (struct pollfd){
            .fd = flows && guest_conn_has_room(&x->conn) ? x->streams[i].fd : -1, .events = POLLIN};
}

static void guest_exec_turn(struct guest_exec *x)
{
    struct pollfd polls[P_COUNT];
    int wait = x->state == STATE_DRAINING ? deadline_ms(&x->drain_by) : -1;

    guest_exec_fill_polls(x, polls);
    /* The grace is over, and the command's last output waits for room in the connection. */
    if (wait == 0 && !guest_conn_has_room(&x->conn))
        wait = -1;
    if (poll(polls, P_COUNT, wait) < 0)
        return;
    if (polls[P_SIGNALS].revents)
        guest_exec_take_signals(x);
    if (polls[P_OUT].revents & (POLLERR | POLLNVAL))
        x->conn.gone = true;
    if (polls[P_IN].revents && x->state == STATE_REPORTED)
        x->conn.gone = true;
    else if (polls[P_IN].revents)
        guest_exec_listen_to_relay(x);
    if (polls[P_STATUS].revents && x->state == STATE_STARTING)
        guest_exec_resolve_start(x);
    if (polls[P_STDIN].revents & (POLLERR | POLLNVAL) && !guest_exec_is_tty(x))
        guest_exec_close_stdin(x, true);
    else if (polls[P_STDIN].revents)
        guest_exec_feed_stdin(x);
    for (size_t i = 0; i < ARRAY_SIZE(x->streams); i++)
        if (polls[P_STREAM + i].revents && x->streams[i].fd >= 0)
            guest_exec_pass_output(x, &x->streams[i]);
    guest_exec_acknowledge(x);
    guest_exec_advance(x);
    guest_conn_flush(&x->conn);
}

/* ---- after the end ---- */

static void guest_exec_forget_output(struct guest_exec *x, char *io, size_t size)
{
    for (size_t i = 0; i < ARRAY_SIZE(x->streams); i++) {
        struct guest_output *s = &x->streams[i];
        ssize_t n = s->fd >= 0 ? read(s->fd, io, size) : -1;

        if (s->fd >= 0 && (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR)))
            s->fd = fd_close(s->fd);
    }
}

/*
 * We read once and then pause: reading at full speed would take processor time from the sandbox for
 * output that is dropped. Our stdio is closed, so that the engine sees the end of the streams.
 */
static void guest_exec_stay(struct guest_exec *x)
{
    const struct timespec pause = {.tv_nsec = FORGET_PAUSE_MS * 1000000L};
    static char io[GUEST_PAYLOAD_MAX];

    stdio_close();
    guest_conn_done(&x->conn);
    guest_spec_done(&x->spec);
    buf_done(&x->pending);
    x->child.in = fd_close(x->child.in);
    for (guest_exec_take_signals(x); x->has_children || !guest_exec_drained(x);
         guest_exec_take_signals(x)) {
        struct pollfd polls[] = {{.fd = x->signals, .events = POLLIN},
                                 {.fd = x->streams[0].fd, .events = POLLIN},
                                 {.fd = x->streams[1].fd, .events = POLLIN}};

        if (poll(polls, ARRAY_SIZE(polls), -1) > 0 && (polls[1].revents || polls[2].revents)) {
            guest_exec_forget_output(x, io, sizeof(io));
            nanosleep(&pause, NULL);
        }
    }
}

static int guest_exec_watch_children(struct guest_exec *x, struct err *err)
{
    sigset_t all, child;

    /* If SIGCHLD were ignored, as some engines leave it, the kernel would reap for us. */
    signal(SIGCHLD, SIG_DFL);
    sigfillset(&all);
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    if (sigprocmask(SIG_SETMASK, &all, NULL) < 0)
        return err_sys(err, errno, "block signals");
    if (prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) {
        err_set(err, ERR_UNSUPPORTED,
                "the container's kernel has no child subreapers (an old gVisor?)");
        return err_hint(err, "Install a newer version of the runtime.");
    }
    x->signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    return x->signals < 0 ? err_sys(err, errno, "watch for children") : 0;
}

int guest_exec(char **argv _unused_, struct err *err)
{
    struct guest_exec x = {
        .fields = BUF_INIT(GUEST_SPEC_MAX),
        .child = CHILD_INIT,
        .streams = {{.fd = -1, .type = GUEST_STDOUT}, {.fd = -1, .type = GUEST_STDERR}},
        .pending = BUF_INIT(GUEST_CREDIT)};
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    x.signals = -1;
    r = guest_conn_open_async(&x.conn, err);
    if (r < 0)
        return r;
    guest_conn_queued(&x.conn, guest_put_hello(&x.conn.out, (uint32_t)getpid()));
    if (guest_exec_watch_children(&x, &why) < 0)
        guest_exec_send_failed(&x, &why);
    guest_conn_flush(&x.conn);
    while (!x.conn.gone && !(x.state == STATE_REPORTED && !x.conn.out.len))
        guest_exec_turn(&x);
    guest_exec_drop_secrets(&x); /* if the end could not be reported */
    if (x.state != STATE_REPORTED && x.child.pid > 0) {
        guest_exec_kill_all(&x, false);
    } else {
        guest_conn_part(&x.conn);
        guest_exec_stay(&x);
    }
    return 0;
}

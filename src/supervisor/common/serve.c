/*
 * A supervisor's life: opening, serving and failing.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "supervisor/common/supervisor.h"

enum { TERM_GRACE_SEC = 5 };

/* SIGTERM comes when the machine shuts down: the sandbox stops in order, with complete records. */
static void supervisor_serve_on_signal(struct loop_source *src, uint32_t events _unused_)
{
    struct supervisor *s = container_of(src, struct supervisor, signals);
    struct signalfd_siginfo si;

    if (read(src->fd, &si, sizeof(si)) == sizeof(si))
        stop_begin(s, TERM_GRACE_SEC * USEC_PER_SEC);
}

static int supervisor_serve_watch_signals(struct supervisor *s, struct err *err)
{
    sigset_t set;
    int fd;

    signal(SIGPIPE, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    signal(SIGINT, SIG_IGN);
    sigemptyset(&set);
    sigaddset(&set, SIGTERM);
    sigprocmask(SIG_BLOCK, &set, NULL);
    fd = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    if (fd < 0)
        return err_sys(err, errno, "watch signals");
    return source_add(s, &s->signals, fd, EPOLLIN, supervisor_serve_on_signal, err);
}

/* Our code expects its own descriptors above 2, so 0 to 2 must be in use. */
void supervisor_hold_fds(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2);
    fd_close(fd);
    fcntl(SUP_FD_CONTROL, F_SETFD, FD_CLOEXEC);
    fcntl(SUP_FD_PLAN, F_SETFD, FD_CLOEXEC);
}

static int supervisor_serve_make_loop(struct supervisor *s, struct err *err)
{
    int fd;

    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll < 0)
        return err_sys(err, errno, "create an epoll instance");
    fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0)
        return err_sys(err, errno, "create a timer");
    return source_add(s, &s->timer, fd, EPOLLIN, timers_on_expiry, err);
}

void supervisor_init(struct supervisor *s, const struct supervisor_ops *ops)
{
    *s = (struct supervisor){.ops = ops,
                             .epoll = -1,
                             .listener.fd = -1,
                             .timer.fd = -1,
                             .signals.fd = -1,
                             .timer_at = DEADLINE_NEVER,
                             .run_dirfd = -1,
                             .exec_dirfd = -1};
}

int supervisor_open(struct supervisor *s, const char *run_dir, const char *exec_dir,
                    struct err *err)
{
    int r;

    r = supervisor_serve_make_loop(s, err);
    if (r < 0)
        return r;
    r = supervisor_serve_watch_signals(s, err);
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, run_dir, &s->run_dirfd, err);
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, exec_dir, &s->exec_dirfd, err);
    if (r < 0)
        return r;
    return peers_listen(s, err);
}

void supervisor_fail(struct supervisor *s, const struct err *err)
{
    struct sup_writer w;

    if (s->run_dirfd >= 0)
        unlinkat(s->run_dirfd, SUP_SOCKET, 0);
    sup_begin(&w, SUP_FAILED, 0);
    sup_put_err(&w, err);
    if (sup_finish(&w, NULL) >= 0)
        fd_send(SUP_FD_CONTROL, buf_data(&w.buf), w.buf.len, NULL, 0, 0);
    peer_hang_up(SUP_FD_CONTROL);
    sup_writer_done(&w);
}

int supervisor_serve(struct supervisor *s, struct err *err)
{
    struct sup_writer w;
    int r;

    r = s->peers ? 0 : peer_add(s, SUP_FD_CONTROL, err);
    if (r < 0)
        return r;
    sup_begin(&w, SUP_READY, 0);
    sup_put_u64(&w, SUP_TAG_PID, (uint64_t)s->pid);
    sup_put_u64(&w, SUP_TAG_UNENFORCED, s->unenforced);
    if (s->peers->held)
        peer_release(s->peers, &w);
    else
        peer_send(s->peers, &w, -1);
    return loop_run(s, err);
}

void execs_drop(struct supervisor *s)
{
    while (s->execs) {
        struct supervised_exec *x = s->execs;

        s->execs = x->next;
        exec_free(x);
    }
}

/* The kernel would free all of this; we do it so that leak checkers show only real leaks. */
void supervisor_done(struct supervisor *s)
{
    while (s->peers) {
        struct supervisor_peer *p = s->peers;

        s->peers = p->next;
        peer_free(p);
    }
    execs_drop(s);
}

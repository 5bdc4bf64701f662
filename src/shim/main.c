#include "shim/main.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include "base/fd.h"
#include "base/log.h"
#include "shim/enter.h"
#include "shim/remove.h"
#include "shim/shim.h"

enum { TERM_GRACE_SEC = 5 };

/* SIGTERM comes when the machine goes down: the sandbox ends in order, with true records. */
static void on_signal(struct source *src, uint32_t events _unused_)
{
    struct shim *s = container_of(src, struct shim, signals);
    struct signalfd_siginfo si;

    if (read(src->fd, &si, sizeof(si)) == sizeof(si))
        stop_begin(s, TERM_GRACE_SEC * USEC_PER_SEC);
}

static int watch_signals(struct shim *s, struct err *err)
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
    return source_add(s, &s->signals, fd, EPOLLIN, on_signal, err);
}

/* Code here relies on descriptors above 2 for itself: 0 to 2 must be taken. */
static void hold_stdio(void)
{
    int fd;

    do
        fd = open("/dev/null", O_RDWR | O_CLOEXEC);
    while (fd >= 0 && fd <= 2);
    fd_close(fd);
}

static int make_loop(struct shim *s, struct err *err)
{
    int fd;

    s->epoll = epoll_create1(EPOLL_CLOEXEC);
    if (s->epoll < 0)
        return err_sys(err, errno, "make an epoll");
    fd = timerfd_create(CLOCK_BOOTTIME, TFD_CLOEXEC | TFD_NONBLOCK);
    if (fd < 0)
        return err_sys(err, errno, "make a timer");
    return source_add(s, &s->timer, fd, EPOLLIN, timers_on_expiry, err);
}

static int open_folders(struct shim *s, struct err *err)
{
    int r = dir_open(AT_FDCWD, s->plan.run_dir, &s->run_dirfd, err);

    if (r >= 0)
        r = dir_open(AT_FDCWD, s->plan.exec_dir, &s->exec_dirfd, err);
    return r;
}

static void shim_init(struct shim *s)
{
    *s = (struct shim){.epoll = -1,
                       .listener.fd = -1,
                       .timer.fd = -1,
                       .init.fd = -1,
                       .signals.fd = -1,
                       .timer_at = DEADLINE_NEVER,
                       .run_dirfd = -1,
                       .exec_dirfd = -1,
                       .init_sock = -1,
                       .meminfo_fd = -1};
    s->init_group = (struct cgroup_group)CGROUP_GROUP_INIT;
    for (int i = 0; i < SHIM_NAMESPACES; i++)
        s->namespaces[i] = -1;
    for (int t = 0; t < CGROUP_TREES; t++)
        s->cgroup.root[t] = s->cgroup.dir[t] = s->cgroup.tasks[t] = -1;
}

static int bring_up(struct shim *s, struct err *err)
{
    int r;

    r = plan_read(SHIM_FD_PLAN, &s->plan, err);
    fd_close(SHIM_FD_PLAN);
    if (r >= 0)
        r = make_loop(s, err);
    if (r >= 0)
        r = watch_signals(s, err);
    if (r >= 0)
        r = open_folders(s, err);
    if (r >= 0)
        r = peers_listen(s, err);
    if (r >= 0)
        r = sandbox_start(s, err);
    return r;
}

static void tell_failed(struct shim *s, const struct err *err)
{
    struct shim_writer w;

    if (s->run_dirfd >= 0)
        unlinkat(s->run_dirfd, SHIM_SOCKET, 0);
    shim_begin(&w, SHIM_FAILED, 0);
    shim_put_err(&w, err);
    if (shim_finish(&w, NULL) >= 0)
        fd_send(SHIM_FD_CONTROL, buf_data(&w.buf), w.buf.len, NULL, 0, 0);
    peer_hang_up(SHIM_FD_CONTROL);
    shim_writer_done(&w);
}

static int serve(struct shim *s, struct err *err)
{
    struct shim_writer w;
    int r;

    r = peer_add(s, SHIM_FD_CONTROL, err);
    if (r < 0)
        return r;
    shim_begin(&w, SHIM_READY, 0);
    shim_put_u64(&w, SHIM_TAG_PID, (uint64_t)s->init_pid);
    shim_put_u64(&w, SHIM_TAG_UNENFORCED, s->unenforced);
    peer_send(s->peers, &w, -1);
    return loop_run(s, err);
}

/* The kernel would take it all back; freed by hand, so that a real leak shows. */
static void shim_done(struct shim *s)
{
    while (s->peers) {
        struct peer *p = s->peers;

        s->peers = p->next;
        peer_free(p);
    }
    while (s->execs) {
        struct exec *x = s->execs;

        s->execs = x->next;
        exec_free(x);
    }
    enter_close(s);
    cgroup_close(&s->cgroup);
    plan_done(&s->plan);
}

static int run(struct shim *s)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (bring_up(s, &err) < 0) {
        tell_failed(s, &err);
        return 1;
    }
    if (serve(s, &err) < 0) {
        log_error("sandbox %s: the shim gives up: %s", s->plan.sandbox_id, err.msg);
        return 1;
    }
    return 0;
}

int shim_main(int argc, char **argv)
{
    struct shim s;
    int r;

    if (argc > 1 && STREQ(argv[1], "remove"))
        return remove_main(argv + 2);

    shim_init(&s);
    hold_stdio();
    prctl(PR_SET_NAME, "ripcord-shim", 0, 0, 0);
    fcntl(SHIM_FD_CONTROL, F_SETFD, FD_CLOEXEC);
    fcntl(SHIM_FD_PLAN, F_SETFD, FD_CLOEXEC);
    r = run(&s);
    shim_done(&s);
    return r;
}

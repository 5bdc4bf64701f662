/*
 * Execs in a native sandbox. The shim makes pipes and forks a helper (exec-child.c), which reports
 * over a status socket whether the command runs. The shim is the command's real parent, so it gets
 * the wait status from the kernel.
 */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/log.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"
#include "lib/os/pty.h"
#include "supervisor/shim/exec-members.h"
#include "supervisor/shim/owner.h"
#include "supervisor/shim/reaper.h"
#include "supervisor/shim/shim.h"

void shim_exec_init(struct supervised_exec *base)
{
    struct shim_exec *x = shim_exec_of(base);

    x->status.fd = x->helper.fd = x->main.fd = x->stdin_fd = x->mark = -1;
    x->group = (struct cgroup_group)CGROUP_GROUP_INIT;
}

void shim_exec_done(struct supervised_exec *base)
{
    struct shim_exec *x = shim_exec_of(base);

    reaper_detach(x);        /* kills what it has not reported as ended */
    if (x->helper.fd >= 0) { /* it has done its work and must only be reaped */
        pidfd_signal(x->helper.fd, SIGKILL);
        pidfd_reap(x->helper.fd, true, NULL, NULL);
    }
    source_close(base->sup, &x->status);
    source_close(base->sup, &x->helper);
    source_close(base->sup, &x->main);
    cgroup_group_done(&x->group);
    fd_close(x->mark);
    fd_close(x->stdin_fd);
    err_done(&x->start_err);
}

/* ---- pipes, helper ---- */

static int shim_exec_make_group(struct shim_exec *x, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    struct shim *s = shim_of_exec(x);
    char name[CGROUP_NAME_MAX];
    int r;

    snprintf(name, sizeof(name), EXEC_GROUP_PREFIX "%s", x->exec.id);
    r = cgroup_group_open(&s->cgroup, name, true, &x->group, &why);
    if (r < 0 && why.errnum != ENOENT)
        return err_move(err, &why);
    if (r < 0) {
        r = shim_restore_cgroups(s, err);
        if (r >= 0)
            r = cgroup_group_open(&s->cgroup, name, true, &x->group, err);
    }
    if (r >= 0)
        cgroup_pids_look(&s->cgroup, &x->group, &x->pids_before);
    return r;
}

/* Pairs of read and write end. */
struct pipes {
    int in[2], out[2], err[2], status[2], control[2]; /* control: confined sandboxes only */
};

#define PIPES_INIT                                                                                 \
    {                                                                                              \
        {-1, -1}, {-1, -1}, {-1, -1}, {-1, -1},                                                    \
        {                                                                                          \
            -1, -1                                                                                 \
        }                                                                                          \
    }

static void shim_exec_pipes_done(struct pipes *p)
{
    int *const all[] = {p->in, p->out, p->err, p->status, p->control};

    for (size_t i = 0; i < ARRAY_SIZE(all); i++) {
        all[i][0] = fd_close(all[i][0]);
        all[i][1] = fd_close(all[i][1]);
    }
}

/*
 * Only the user that made a pipe may open it by name, and our user does not exist inside. So
 * without this mode a command could not open /dev/stdin, /dev/stdout or /dev/stderr. Other
 * processes reach the pipe only if they may inspect the command anyway.
 */
static int shim_exec_make_pipe(int p[2])
{
    return pipe2(p, O_CLOEXEC) < 0 ? -1 : fchmod(p[0], 0666);
}

static int shim_exec_pipes_open(const struct supervised_exec *x, struct pipes *p, struct err *err)
{
    bool tty = x->spec.flags & SUP_EXEC_TTY, in = x->spec.flags & SUP_EXEC_STDIN;
    bool merged = !tty && x->spec.flags & SUP_EXEC_MERGED;

    if ((in && !tty && shim_exec_make_pipe(p->in) < 0) ||
        (!tty && shim_exec_make_pipe(p->out) < 0) ||
        (!tty && !merged && shim_exec_make_pipe(p->err) < 0) ||
        socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p->status) < 0 ||
        (shim_of(x->sup)->confined &&
         socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, p->control) < 0))
        return err_sys(err, errno, "make pipes for exec '%s'", x->id);
    if (!merged)
        return 0;
    p->err[1] = fcntl(p->out[1], F_DUPFD_CLOEXEC, 0);
    return p->err[1] < 0 ? err_sys(err, errno, "merge the output of exec '%s'", x->id) : 0;
}

static void shim_exec_on_status(struct loop_source *src, uint32_t events);
static void shim_exec_on_helper(struct loop_source *src, uint32_t events);
static void shim_exec_on_main(struct loop_source *src, uint32_t events);

static int shim_exec_fork_helper(struct shim_exec *x, struct pipes *p, struct err *err)
{
    struct shim *s = shim_of_exec(x);
    struct exec_fds fds = {.status = p->status[1],
                           .control = p->control[1],
                           .in = p->in[0],
                           .out = p->out[1],
                           .err = p->err[1],
                           .cgroup = &s->cgroup,
                           .group = &x->group};
    int pidfd = -1;
    pid_t pid;

    if (s->confined) {
        int r = reaper_start(x, &fds, p->control[0], err);

        if (r >= 0)
            TAKE_FD(p->control[0]);
        return r;
    }
    pid = ns_clone(0, cgroup_group_clone_fd(&x->group), &pidfd);
    if (pid == 0)
        exec_helper(s, &x->exec, &fds);
    if (pid < 0)
        return err_sys(err, -pid, "start a helper for exec '%s'", x->exec.id);
    if (source_add(&s->sup, &x->helper, pidfd, EPOLLIN, shim_exec_on_helper, err) < 0) {
        pidfd_signal(pidfd, SIGKILL);
        pidfd_reap(pidfd, true, NULL, NULL);
        fd_close(pidfd);
        return -ERR_SYSTEM;
    }
    return 0;
}

static int shim_exec_watch(struct shim_exec *x, struct pipes *p, struct err *err)
{
    struct supervised_exec *base = &x->exec;
    int r;

    base->tty = base->spec.flags & SUP_EXEC_TTY;
    r = source_add(base->sup, &x->status, p->status[0], EPOLLIN, shim_exec_on_status, err);
    if (r < 0)
        return r;
    TAKE_FD(p->status[0]);
    r = streams_open(base, p->out[0], p->err[0], err);
    /* The streams own the descriptors that they watch, even if the second one failed. */
    if (base->streams[JOURNAL_STDOUT].src.fd >= 0)
        TAKE_FD(p->out[0]);
    if (base->streams[JOURNAL_STDERR].src.fd >= 0)
        TAKE_FD(p->err[0]);
    x->stdin_fd = TAKE_FD(p->in[1]);
    return r;
}

int shim_exec_launch(struct supervised_exec *base, struct err *err)
{
    struct shim_exec *x = shim_exec_of(base);
    _cleanup_(shim_exec_pipes_done) struct pipes p = PIPES_INIT;
    int r;

    if (base->sup->state == SUP_PAUSED) {
        err_set(err, ERR_CONFLICT, "the sandbox is paused");
        return err_hint(err, "Resume it first: `ripcord resume %s`.", base->sup->name);
    }
    r = shim_exec_make_group(x, err);
    if (r < 0)
        return r;
    r = shim_exec_pipes_open(base, &p, err);
    if (r < 0)
        return r;
    r = shim_exec_fork_helper(x, &p, err);
    if (r < 0)
        return r;
    kernel_memory_watch(shim_of_exec(x));
    return shim_exec_watch(x, &p, err);
}

/* ---- the status socket ---- */

/* The status socket has ended: the command runs, or the error is known. */
static void shim_exec_resolve(struct shim_exec *x)
{
    struct supervised_exec *base = &x->exec;

    source_close(base->sup, &x->status);
    if (!x->start_err.code && x->main.fd < 0 && base->killed) {
        exec_killed_in_start(base);
        return;
    }
    if (!x->start_err.code && x->main.fd < 0)
        err_set(&x->start_err, ERR_ENGINE, "the helper that enters the sandbox was killed");
    if (x->start_err.code) {
        /* It has reported its error and is about to exit. A reaper waits for it itself. */
        if (x->main.fd >= 0 && !shim_of_exec(x)->confined) {
            pidfd_signal(x->main.fd, SIGKILL);
            pidfd_reap(x->main.fd, true, NULL, NULL);
        }
        source_close(base->sup, &x->main);
        exec_fail_start(base, &x->start_err);
        return;
    }
    exec_started(base, base->tty ? shim_exec_terminal(base) : TAKE_FD(x->stdin_fd));
    /* The command may have ended already; its events were ignored in state STARTING. */
    if (!shim_of_exec(x)->confined)
        shim_exec_on_main(&x->main, 0);
}

/* The helper reports that the command's process exists. Its pidfd comes first, then the mark if it
 * has one, then the terminal if it was requested. */
static void shim_exec_take_process(struct shim_exec *x, const char *packet, size_t len,
                                   int fds[EXEC_STARTED_FDS])
{
    bool confined = shim_of_exec(x)->confined, marked = shim_of_exec(x)->by_descriptor;
    int *tty = marked ? &fds[2] : &fds[1];
    struct supervised_exec *base = &x->exec;
    _cleanup_err_ struct err err = ERR_INIT;
    struct sup_reader r;
    struct sup_value v;

    if (sup_read(&r, packet, len, &err) < 0)
        return;
    while (sup_next(&r, &v, &err) > 0)
        if (v.tag == SUP_TAG_PID)
            base->pid = (int)v.u64;
    if (confined) /* not our child: the reaper reports its end */
        x->main.fd = TAKE_FD(fds[0]);
    else if (fds[0] >= 0 &&
             source_add(base->sup, &x->main, fds[0], EPOLLIN, shim_exec_on_main, &err) >= 0)
        TAKE_FD(fds[0]);
    if (*tty >= 0 && streams_open(base, *tty, -1, &err) >= 0)
        TAKE_FD(*tty);
    if (marked)
        x->mark = TAKE_FD(fds[1]);
    if (err.code)
        err_move(&x->start_err, &err);
}

static void shim_exec_on_status(struct loop_source *src, uint32_t events _unused_)
{
    struct shim_exec *x = container_of(src, struct shim_exec, status);
    char *packet = supervisor_io(x->exec.sup);
    int fds[EXEC_STARTED_FDS] = {-1, -1, -1};
    size_t n = EXEC_STARTED_FDS;
    ssize_t len = fd_recv(src->fd, packet, SUP_MSG_MAX, fds, &n, MSG_DONTWAIT);

    if (len == -EAGAIN)
        return;
    if (len > 0 && n > 0)
        shim_exec_take_process(x, packet, (size_t)len, fds);
    else if (len > 0 && !x->start_err.code)
        sup_read_err(packet, (size_t)len, &x->start_err);
    else
        shim_exec_resolve(x);
    for (size_t i = 0; i < ARRAY_SIZE(fds); i++)
        fd_close(fds[i]);
}

static void shim_exec_on_helper(struct loop_source *src, uint32_t events _unused_)
{
    struct shim_exec *x = container_of(src, struct shim_exec, helper);

    if (pidfd_reap(src->fd, false, NULL, NULL) != 0)
        source_close(x->exec.sup, src);
}

/* ---- a running command ---- */

int shim_exec_signal(struct supervised_exec *base, int sig, struct err *err)
{
    int r = pidfd_signal(shim_exec_of(base)->main.fd, sig);

    return r < 0 && r != -ESRCH ? err_sys(err, -r, "signal exec '%s'", base->id) : 0;
}

/* Only the owner of the sandbox may look at the namespaces of its processes. */
static bool shim_exec_kill_members(const struct shim *s, int mark)
{
    bool done;

    if (owner_act(s, true) < 0)
        return false;
    done = exec_members_kill(mark);
    if (owner_act(s, false) < 0) {
        log_error("sandbox %s: the shim cannot act as root again", s->plan.sandbox_id);
        _exit(1);
    }
    return done;
}

void shim_exec_kill(struct supervised_exec *base)
{
    struct shim_exec *x = shim_exec_of(base);
    struct shim *s = shim_of_exec(x);
    bool all = GUARD("whole tree");

    if (s->confined) {
        reaper_kill(x);
        return;
    }
    if (all && cgroup_group_kill(&s->cgroup, &x->group))
        return;
    if (x->main.fd >= 0)
        pidfd_signal(x->main.fd, SIGKILL);
    if (x->helper.fd >= 0)
        pidfd_signal(x->helper.fd, SIGKILL);
    if (all && x->mark >= 0 && !shim_exec_kill_members(s, x->mark))
        log_warn("exec %s: some processes survive SIGKILL; they end with the sandbox", base->id);
}

int shim_exec_terminal(struct supervised_exec *base)
{
    int fd = base->streams[JOURNAL_STDOUT].src.fd;

    return fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, 3);
}

int shim_exec_resize(struct supervised_exec *base, uint16_t rows, uint16_t cols, struct err *err)
{
    return pty_resize(base->streams[JOURNAL_STDOUT].src.fd, rows, cols, err);
}

/* A pipe ends when its holder closes it; a terminal gets its end-of-file character. */
int shim_exec_stdin_close(struct supervised_exec *base, struct err *err _unused_)
{
    int fd = base->streams[JOURNAL_STDOUT].src.fd;
    struct termios tio;

    if (base->tty && fd >= 0 && tcgetattr(fd, &tio) == 0 && tio.c_cc[VEOF])
        fd_write_all(fd, &tio.c_cc[VEOF], 1);
    return 0;
}

/* ---- its end ---- */

static void shim_exec_on_main(struct loop_source *src, uint32_t events _unused_)
{
    struct shim_exec *x = container_of(src, struct shim_exec, main);
    struct supervised_exec *base = &x->exec;
    int r;

    if (base->state == EXEC_STARTING) /* first its status socket must report whether it ran */
        return;
    stop_if_init_dies(shim_of_exec(x));
    r = pidfd_reap(src->fd, false, &base->wait_status, &base->usage);
    if (r == 0)
        return;
    if (r < 0) { /* should not happen, and must not be reported as success */
        log_error("exec %s: no wait status: %s", base->id, strerror(-r));
        base->wait_status = SIGKILL;
    }
    source_close(base->sup, src);
    exec_main_ended(base);
}

bool shim_exec_has_survivors(const struct supervised_exec *base)
{
    const struct shim_exec *x = container_of(base, const struct shim_exec, exec);

    return x->survived || cgroup_group_populated(&x->group);
}

static uint64_t shim_exec_timeval_usec(const struct timeval *tv)
{
    return (uint64_t)tv->tv_sec * USEC_PER_SEC + (uint64_t)tv->tv_usec;
}

/* Without a cgroup: the kernel's sums for the main process and the children that it waited for. */
void shim_exec_fill(const struct supervised_exec *base, struct end_record *rec)
{
    const struct shim_exec *x = container_of(base, const struct shim_exec, exec);
    struct shim *s = shim_of(base->sup);
    const struct rusage *ru = &base->usage;
    struct cgroup_usage u;

    cgroup_usage(&s->cgroup, &x->group, &u);
    rec->cpu_usec =
        u.cpu_usec ? u.cpu_usec
                   : shim_exec_timeval_usec(&ru->ru_utime) + shim_exec_timeval_usec(&ru->ru_stime);
    rec->memory_peak = u.memory_peak ? u.memory_peak : (uint64_t)ru->ru_maxrss * 1024;
    rec->memory_peak += x->uncharged;
    rec->memory_limit = s->sup.unenforced & LIMIT_MEMORY ? 0 : s->plan.memory;
    rec->oom_kills = u.oom_kills;
    rec->io_read = (uint64_t)ru->ru_inblock * 512;
    rec->io_write = (uint64_t)ru->ru_oublock * 512;
    rec->pids_denied =
        cgroup_pids_denied_since(&s->cgroup, &x->group, &x->pids_before, base->alone);
}

/* Removes the group if it is empty. A group with a daemonised child stays until the sandbox
 * stops. */
void shim_exec_over(struct supervised_exec *base)
{
    struct shim_exec *x = shim_exec_of(base);

    cgroup_group_done(&x->group);
    if (!base->sup->ephemeral && *x->group.name)
        cgroup_group_remove(&shim_of_exec(x)->cgroup, x->group.name);
}

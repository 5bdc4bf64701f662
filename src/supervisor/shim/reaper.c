#include "supervisor/shim/reaper.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "lib/os/landlock.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"
#include "supervisor/shim/confined-exec.h"
#include "supervisor/shim/confined.h"
#include "supervisor/shim/exec-child.h"

enum {
    REAPER_FD_CONTROL = 3,
    REAPER_FD_SIGNALS,
    REAPER_FD_ALIVE,
    REAPER_FDS,
    REAPER_FD_SPARE = 16,
    KILL_PAUSE_USEC = 1000, /* between two kills while processes end; then more */
    KILL_PAUSE_MAX_USEC = 64000,
};

/* From the reaper to the shim. Both are the same program. */
struct reaper_report {
    int status; /* of the command's process, as of waitpid(2) */
    bool left;  /* other processes of the exec live */
    struct rusage usage;
};

/* ---- the process ---- */

struct exec_tree {
    pid_t main;  /* 0: reported */
    bool scoped; /* kill(-1) reaches only processes of this exec */
    bool killing;
};

/* One system call for the whole exec: the kernel goes through all processes and skips those that
 * lie outside of our domain. Never without that domain: it would end the user's session. */
static void reaper_kill_tree(const struct exec_tree *t)
{
    if (t->scoped && GUARD("whole tree"))
        kill(-1, SIGKILL);
    else if (t->main)
        kill(t->main, SIGKILL);
}

static void reaper_report(struct exec_tree *t, struct reaper_report *r)
{
    siginfo_t si;

    t->main = 0;
    r->left = waitid(P_ALL, 0, &si, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0;
    fd_send(REAPER_FD_CONTROL, r, sizeof(*r), NULL, 0, 0);
}

/* Reaps what has ended; false when no child is left. */
static bool reaper_reap(struct exec_tree *t)
{
    struct reaper_report r = {0}, end = {0};
    bool ended = false;
    pid_t pid;

    while ((pid = wait4(-1, &r.status, WNOHANG | __WALL, &r.usage)) > 0)
        if (pid == t->main) {
            ended = true;
            end = r;
        }
    if (ended) /* after the others, so that `left` counts no zombie */
        reaper_report(t, &end);
    return pid == 0;
}

/* A byte, or the end of the shim: both mean the same. */
static void reaper_read_control(struct exec_tree *t)
{
    char byte;

    if (recv(REAPER_FD_CONTROL, &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN)
        t->killing = true;
}

_noreturn_ static void reaper_loop(struct exec_tree *t)
{
    struct pollfd p[] = {{.fd = REAPER_FD_CONTROL, .events = POLLIN},
                         {.fd = REAPER_FD_SIGNALS, .events = POLLIN}};
    useconds_t pause = KILL_PAUSE_USEC;

    while (reaper_reap(t)) {
        struct signalfd_siginfo si;

        if (t->killing) {
            reaper_kill_tree(t);
            usleep(pause);
            pause = MIN(2 * pause, (useconds_t)KILL_PAUSE_MAX_USEC);
            continue;
        }
        if (poll(p, ARRAY_SIZE(p), -1) < 0 && errno != EINTR)
            _exit(1);
        if (p[1].revents && read(REAPER_FD_SIGNALS, &si, sizeof(si)) < 0 && errno != EAGAIN)
            _exit(1);
        if (p[0].revents)
            reaper_read_control(t);
    }
    _exit(0);
}

/* Keeps only its own descriptors: a copy of the command's output would keep that open for ever. */
static int reaper_keep_descriptors(int control, int signals, int alive)
{
    const int keep[REAPER_FDS - REAPER_FD_CONTROL] = {control, signals, alive};
    int high[ARRAY_SIZE(keep)];

    for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
        if ((high[i] = fcntl(keep[i], F_DUPFD_CLOEXEC, REAPER_FD_SPARE)) < 0)
            return -errno;
    for (size_t i = 0; i < ARRAY_SIZE(keep); i++)
        if (dup3(high[i], REAPER_FD_CONTROL + (int)i, O_CLOEXEC) < 0)
            return -errno;
    syscall(SYS_close_range, REAPER_FDS, ~0U, 0);
    return 0;
}

static int reaper_watch_children(int *ret, struct err *err)
{
    sigset_t set;

    sigemptyset(&set);
    sigaddset(&set, SIGCHLD);
    sigprocmask(SIG_BLOCK, &set, NULL);
    *ret = signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
    return *ret < 0 ? err_sys(err, errno, "watch the command's processes") : 0;
}

/* The scope must hold before anything relies on it: our parent is outside. */
static int reaper_enter_scope(struct exec_tree *t, struct err *err)
{
    int r;

    if (!GUARD("landlock"))
        return 0;
    r = landlock_scopes(err);
    if (r < 0)
        return r;
    if (kill(getppid(), 0) == 0 || errno != EPERM)
        return err_set(err, ERR_UNSUPPORTED, "Landlock does not scope signals on this machine");
    t->scoped = true;
    return 0;
}

_noreturn_ void reaper_main(struct exec_entry *e, int control)
{
    struct err err = ERR_INIT;
    struct exec_tree tree = {0};
    int signals = -1, pidfd = -1, alive = e->shim->confined->alive;

    prctl(PR_SET_NAME, "ripcord-reaper", 0, 0, 0);
    if ((GUARD("subreaper") && prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) < 0) ||
        reaper_watch_children(&signals, &err) < 0 || reaper_enter_scope(&tree, &err) < 0)
        exec_child_fail(e->status, &err);
    tree.main = ns_clone(0, -1, &pidfd);
    if (tree.main == 0)
        confined_exec_run(e);
    if (tree.main < 0)
        exec_child_fail_clone(e, -tree.main);
    exec_child_report_started(e, tree.main, pidfd);
    if (reaper_keep_descriptors(control, signals, alive) < 0)
        _exit(1);
    reaper_loop(&tree);
}

/* ---- in the shim ---- */

static void reaper_free(struct exec_reaper *r)
{
    struct exec_reaper **at = &r->shim->confined->reapers;

    while (*at != r)
        at = &(*at)->next;
    *at = r->next;
    if (r->exec)
        r->exec->reaper = NULL;
    source_close(&r->shim->sup, &r->control);
    source_close(&r->shim->sup, &r->broker);
    r->shim->confined->children_at = 0; /* perhaps it was the last */
    free(r);
}

static void reaper_free_if_ended(struct exec_reaper *r)
{
    if (r->control.fd < 0 && r->broker.fd < 0)
        reaper_free(r);
}

/* The command may be out of control: nothing of the sandbox stays. */
static void reaper_lost(struct exec_reaper *r)
{
    struct supervised_exec *x = &r->exec->exec;
    _cleanup_err_ struct err err = ERR_INIT;

    err_set(&err, ERR_ENGINE, "the process that watched the command was killed");
    log_warn("exec %s: %s; the sandbox ends", x->id, err.msg);
    exec_lose(x, &err);
    stop_begin(x->sup, 0);
}

static void reaper_take_report(struct exec_reaper *r, const struct reaper_report *report)
{
    struct shim_exec *x = r->exec;

    r->reported = true;
    if (!x || x->exec.state != EXEC_RUNNING)
        return;
    x->survived = report->left;
    x->exec.wait_status = report->status;
    x->exec.usage = report->usage;
    source_close(x->exec.sup, &x->main);
    exec_main_ended(&x->exec);
}

static void reaper_on_control(struct loop_source *src, uint32_t events _unused_)
{
    struct exec_reaper *r = container_of(src, struct exec_reaper, control);
    struct reaper_report report;
    ssize_t n;

    /* First its status socket must report whether it runs, as in shim_exec_on_main(). */
    if (r->exec && r->exec->exec.state == EXEC_STARTING && r->exec->status.fd >= 0)
        return;
    n = recv(src->fd, &report, sizeof(report), MSG_DONTWAIT);
    if (n == sizeof(report)) {
        reaper_take_report(r, &report);
        return;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    source_close(&r->shim->sup, src);
    if (r->exec && r->exec->exec.state == EXEC_RUNNING && !r->reported)
        reaper_lost(r);
    reaper_free_if_ended(r);
}

static void reaper_on_broker(struct loop_source *src, uint32_t events _unused_)
{
    struct exec_reaper *r = container_of(src, struct exec_reaper, broker);

    if (pidfd_reap(src->fd, false, NULL, NULL) == 0)
        return;
    source_close(&r->shim->sup, src);
    reaper_free_if_ended(r);
}

int reaper_start(struct shim_exec *x, const struct exec_fds *fds, int control, struct err *err)
{
    struct shim *s = shim_of_exec(x);
    struct exec_reaper *r;
    int pidfd = -1;
    pid_t pid = ns_clone(0, -1, &pidfd);

    if (pid == 0) {
        close(control);
        confined_exec_helper(s, &x->exec, fds);
    }
    if (pid < 0)
        return err_sys(err, -pid, "start a helper for exec '%s'", x->exec.id);
    r = xnew0(struct exec_reaper);
    *r = (struct exec_reaper){
        .next = s->confined->reapers, .shim = s, .exec = x, .control.fd = -1, .broker.fd = -1};
    s->confined->reapers = r;
    x->reaper = r;
    if (source_add(&s->sup, &r->broker, pidfd, EPOLLIN, reaper_on_broker, err) < 0 ||
        source_add(&s->sup, &r->control, control, EPOLLIN, reaper_on_control, err) < 0) {
        pidfd_signal(pidfd, SIGKILL);
        pidfd_reap(pidfd, true, NULL, NULL);
        if (r->broker.fd < 0)
            fd_close(pidfd);
        reaper_free(r);
        return -(int)err->code;
    }
    return 0;
}

static void reaper_send_kill(const struct exec_reaper *r)
{
    if (r->control.fd >= 0)
        fd_send(r->control.fd, "k", 1, NULL, 0, MSG_DONTWAIT);
}

void reaper_kill(struct shim_exec *x)
{
    if (!x->reaper)
        return;
    reaper_send_kill(x->reaper);
    /* The helper may hang before there is a reaper. Later it is the broker, and the others can do
     * without: they are about to end. */
    if (x->main.fd < 0 && !x->reaper->reported && x->reaper->broker.fd >= 0)
        pidfd_signal(x->reaper->broker.fd, SIGKILL);
}

void reapers_kill(struct shim *s)
{
    for (struct exec_reaper *r = s->confined->reapers; r; r = r->next)
        reaper_send_kill(r);
}

bool reapers_live(const struct shim *s)
{
    for (const struct exec_reaper *r = s->confined->reapers; r; r = r->next)
        if (r->control.fd >= 0)
            return true;
    return false;
}

void reaper_detach(struct shim_exec *x)
{
    if (!x->reaper)
        return;
    if (!x->reaper->reported) /* its start has failed on our side */
        reaper_kill(x);
    x->reaper->exec = NULL;
    x->reaper = NULL;
}

void reapers_free(struct shim *s)
{
    while (s->confined && s->confined->reapers)
        reaper_free(s->confined->reapers);
}

#include "supervisor/shim/confined-exec.h"

#include <dirent.h>
#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/os/command.h"
#include "lib/os/ns.h"
#include "lib/os/pty.h"
#include "lib/os/seccomp-confined.h"
#include "lib/os/seccomp-filter.h"
#include "supervisor/shim/broker.h"
#include "supervisor/shim/confined.h"
#include "supervisor/shim/exec-child.h"
#include "supervisor/shim/reaper.h"

enum { OWN_PROCESSES = 64 }; /* brokers and reapers of the same user */

/* ---- the command's process ---- */

static int confined_exec_install_filters(struct exec_entry *e, struct err *err)
{
    const struct plan *p = &e->shim->plan;
    int listener = -1, r;

    if (!GUARD("seccomp"))
        return 0;
    /* This one first: the other does not allow a filter that reports calls. */
    if (GUARD("confined calls")) {
        r = seccomp_confined_install(!p->own_id, &listener, err);
        if (r < 0)
            return r;
        r = fd_send(e->listener, "", 1, &listener, 1, 0);
        if (r < 0)
            return err_sys(err, -r, "hand over the filter's listener");
        fd_close(listener);
    }
    fd_close(e->listener);
    return seccomp_filter_install(p->seccomp, p->seccomp_len, err);
}

_noreturn_ void confined_exec_run(struct exec_entry *e)
{
    struct err err = ERR_INIT;
    sigset_t none;

    sigemptyset(&none);
    sigprocmask(SIG_SETMASK, &none, NULL);
    if (confined_enter(e->shim, &err) < 0 || exec_child_arrange_stdio(e, &err) < 0 ||
        confined_exec_install_filters(e, &err) < 0)
        exec_child_fail(e->status, &err);
    exec_child_run(e);
}

/* ---- the helper, which becomes the broker ---- */

/* Threads of one user: the kernel counts them for RLIMIT_NPROC. */
static uint64_t confined_exec_count_threads(uid_t uid)
{
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    const struct dirent *e;
    uint64_t sum = 0;

    while (proc && (e = readdir(proc))) {
        char path[NAME_MAX + 8];
        struct stat st;

        snprintf(path, sizeof(path), "%s/task", e->d_name);
        if (e->d_name[0] >= '1' && e->d_name[0] <= '9' && fstatat(dirfd(proc), path, &st, 0) == 0 &&
            st.st_uid == uid)
            sum += st.st_nlink > 2 ? st.st_nlink - 2 : 1;
    }
    return sum;
}

/* This stops a fork bomb. It is not an exact limit, as other processes of the user count too. */
static uint64_t confined_exec_process_limit(const struct plan *p)
{
    if (!p->pids)
        return 0;
    return p->pids + OWN_PROCESSES + (p->own_id ? 0 : confined_exec_count_threads(geteuid()));
}

static int confined_exec_prepare(struct exec_entry *e, struct err *err)
{
    const struct plan *p = &e->shim->plan;
    _cleanup_free_ char *workdir = NULL, *dir = NULL;
    int r = confined_user(e->shim, e->spec->user, &e->user, err);

    if (r < 0)
        return r;
    if (e->handover->n_secrets) {
        err_set(err, ERR_UNSUPPORTED, "secrets are not available with isolation 'confined'");
        return err_hint(err, "Pass them on standard input: no private file system can be mounted.");
    }
    r = exec_child_settle(p, err);
    if (r < 0)
        return r;
    r = GUARD("rlimits") ? exec_child_set_limits(p, confined_exec_process_limit(p), err) : 0;
    if (r < 0)
        return r;
    r = confined_become(p, err);
    if (r < 0)
        return r;
    if (e->spec->flags & SUP_EXEC_TTY)
        r = pty_open(e->spec->rows, e->spec->cols, &e->master, &e->in, err);
    else if (e->in < 0)
        r = exec_child_open_null(&e->in, err);
    if (r < 0)
        return r;
    workdir = exec_workdir(e->spec, p->workdir);
    dir = confined_path(e->shim, workdir);
    return exec_child_enter_workdir(dir, err);
}

_noreturn_ void confined_exec_helper(const struct shim *s, const struct supervised_exec *x,
                                     const struct exec_fds *fds)
{
    struct exec_entry e = exec_child_entry(s, x, fds);
    struct err err = ERR_INIT;
    int pair[2];
    pid_t pid;

    command_reset_signals();
    umask(022);
    if (confined_exec_prepare(&e, &err) < 0)
        exec_child_fail(e.status, &err);
    exec_child_build_env(&e);
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0) {
        err_sys(&err, errno, "make a socket pair");
        exec_child_fail(e.status, &err);
    }
    e.listener = pair[1];
    pid = ns_clone(0, -1, NULL);
    if (pid == 0)
        reaper_main(&e, fds->control);
    if (pid < 0)
        exec_child_fail_clone(&e, -pid);
    broker_main(s, pair[0]);
}

/*
 * Entering the sandbox. (confined-exec.c does the same where there are no namespaces to enter.) The
 * helper is a fork of the shim. It joins the exec's cgroup and the
 * sandbox's namespaces, becomes the user and gives up every privilege while it is still in the
 * host's pid namespace, where no process inside can see it. Only then it clones the command's
 * process, with CLONE_PARENT so that the shim is its real parent. That process has no privileges
 * from its start; it sets up session, stdio and seccomp, and calls execve. Both processes are not
 * dumpable, so that even a process with the same uid cannot inspect them.
 */
#include "supervisor/shim/exec-child.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/close_range.h>
#include <linux/openat2.h>
#include <linux/sched.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/command.h"
#include "lib/os/landlock.h"
#include "lib/os/ns.h"
#include "lib/os/pty.h"
#include "lib/os/rlimit.h"
#include "lib/os/seccomp-filter.h"
#include "lib/os/user.h"
#include "supervisor/shim/enter.h"
#include "supervisor/shim/identity.h"
#include "supervisor/shim/proc-view.h"
#include "supervisor/shim/secrets.h"
#include "supervisor/shim/shim.h"

enum {
    NAMESPACES = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
                 CLONE_NEWUTS | CLONE_NEWCGROUP,
    NOFILE_DEFAULT = 16384,
    NPROC_SPARE = 16, /* above the limit of processes */
    INIT_DEATH_MS = 1000,
    STATUS_FD = 3, /* the child's status socket to the shim, until execve */
    LISTENER_FD,   /* struct exec_entry */
};

#define OOM_SCORE_ADJ "300" /* the kernel kills the sandbox's processes before ours */
#define PATH_DEFAULT "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

/* ---- reporting to the shim ---- */

_noreturn_ void exec_child_fail(int status, const struct err *err)
{
    struct sup_writer w;

    sup_begin(&w, SUP_FAILED, 0);
    sup_put_err(&w, err);
    if (sup_finish(&w, NULL) >= 0)
        fd_send(status, buf_data(&w.buf), w.buf.len, NULL, 0, 0);
    _exit(127);
}

/* ---- in the helper ---- */

static int exec_child_pin_cpus(const struct plan *plan, struct err *err)
{
    cpu_set_t have, want;
    unsigned count;

    if (!plan->cpu_milli || sched_getaffinity(0, sizeof(have), &have) < 0)
        return 0;
    count = proc_view_cpu_count(plan->cpu_milli, &have);
    if (count >= (unsigned)CPU_COUNT(&have))
        return 0;
    proc_view_affinity(&have, count, (uint32_t)strtoul(plan->sandbox_id + 8, NULL, 16), &want);
    if (sched_setaffinity(0, sizeof(want), &want) < 0)
        return err_sys(err, errno, "pin to %u CPUs", count);
    return 0;
}

int exec_child_settle(const struct plan *plan, struct err *err)
{
    int r = file_write(AT_FDCWD, "/proc/self/oom_score_adj", OOM_SCORE_ADJ, err);

    if (r < 0)
        return r;
    /* After that write: the /proc files of a process that is not dumpable belong to root. */
    if (prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(err, errno, "make the helper non-dumpable");
    return exec_child_pin_cpus(plan, err);
}

static int exec_child_namespaces(void)
{
    return GUARD("pid namespace") ? NAMESPACES : NAMESPACES & ~CLONE_NEWPID;
}

/* Waits until pid 1 has built the sandbox. If that fails, pid 1 or the shim reports the error. */
static void exec_child_wait_ready(int ready_pipe)
{
    char byte;
    ssize_t n;

    do
        n = read(ready_pipe, &byte, 1);
    while (n < 0 && errno == EINTR);
    if (n <= 0)
        _exit(127);
}

/* The helper of an ephemeral sandbox starts before the sandbox is built, and does as much as
 * possible while pid 1 builds. */
static int exec_child_join_ahead(struct exec_entry *e, struct err *err)
{
    int mounts = -1, r;

    r = enter_ahead(e->shim, exec_child_namespaces(), &mounts, &e->mark, err);
    if (r < 0)
        return r;
    r = identity_bound(err);
    if (r < 0)
        return r;
    exec_child_wait_ready(e->shim->ready_pipe);
    return ns_enter(mounts, CLONE_NEWNS, err);
}

static int exec_child_join(struct exec_entry *e, const struct exec_fds *fds, struct err *err)
{
    int r;

    r = cgroup_group_enter(fds->cgroup, fds->group);
    if (r < 0)
        return err_sys(err, -r, "join the exec's cgroup");
    r = exec_child_settle(&e->shim->plan, err);
    if (r < 0)
        return r;
    if (e->shim->ready_pipe >= 0)
        return exec_child_join_ahead(e, err);
    return enter_sandbox(e->shim, exec_child_namespaces(), &e->mark, err);
}

int exec_child_set_limits(const struct plan *plan, uint64_t processes, struct err *err)
{
    uint64_t nofile = plan->nofile ? plan->nofile : NOFILE_DEFAULT;
    int r;

    r = rlimit_set(RLIMIT_CORE, 0, 0, err); /* the kernel writes a dump outside the cgroup */
    if (r < 0)
        return r;
    r = rlimit_set(RLIMIT_NOFILE, nofile, nofile, err);
    if (r < 0)
        return r;
    if (processes) {
        r = rlimit_set(RLIMIT_NPROC, processes, processes, err);
        if (r < 0)
            return r;
    }
    r = rlimit_set(RLIMIT_NICE, 0, 0, err);
    if (r < 0)
        return r;
    return rlimit_set(RLIMIT_RTPRIO, 0, 0, err);
}

/* The kernel checks RLIMIT_NPROC before the cgroup, and only the cgroup counts what it refused. So
 * where the cgroup has the limit, this one is higher. */
static uint64_t exec_child_process_limit(const struct shim *s)
{
    uint32_t pids = s->plan.pids;

    return pids && !(s->sup.unenforced & LIMIT_PIDS) ? pids + NPROC_SPARE : pids;
}

/*
 * Opens the folder inside the root, without magic links, and checks the result: neither a path
 * through /proc/self/fd nor a path out of the root ever becomes the working directory.
 */
int exec_child_enter_workdir(const char *path, struct err *err)
{
    struct open_how how = {.flags = O_PATH | O_DIRECTORY | O_CLOEXEC,
                           .resolve =
                               GUARD("workdir") ? RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS : 0};
    _cleanup_close_ int root = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC), fd = -1;
    char real[PATH_MAX];

    if (root < 0)
        return err_sys(err, errno, "open '/' inside");
    fd = (int)syscall(SYS_openat2, root, path, &how, sizeof(how));
    if (fd < 0 || fchdir(fd) < 0) {
        err_set(err, ERR_INVALID, "working folder '%s': %s", path, strerror(errno));
        return err_hint(
            err, "The folder must exist inside the sandbox, and the user needs access to it.");
    }
    if (!getcwd(real, sizeof(real)) || real[0] != '/')
        return err_set(err, ERR_DENIED, "working folder '%s' is outside the sandbox", path);
    return 0;
}

int exec_child_open_null(int *ret, struct err *err)
{
    struct open_how how = {.flags = O_RDWR | O_NOCTTY | O_CLOEXEC,
                           .resolve = RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS};
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, "/dev/null", &how, sizeof(how));
    struct stat st;

    if (fd < 0)
        return err_sys(err, errno, "open '/dev/null' inside");
    *ret = fd;
    if (fstat(fd, &st) < 0 || !S_ISCHR(st.st_mode) || st.st_rdev != makedev(1, 3))
        return err_set(err, ERR_DENIED, "'/dev/null' inside is not the null device");
    return 0;
}

/* HOME, USER and LOGNAME describe the user, unless the caller sets them. A user other than the
 * sandbox's does not inherit the sandbox's values. The command's process inherits this memory, so
 * nothing is freed. */
void exec_child_build_env(struct exec_entry *e)
{
    bool other = e->spec->user && !STREQ(e->spec->user, e->shim->plan.user);
    char *const *of_sandbox = e->shim->plan.env;
    const char *const who[][2] = {
        {"HOME", e->user.home}, {"USER", e->user.name}, {"LOGNAME", e->user.name}};
    struct strv_list added = {0};

    for (size_t i = 0; i < ARRAY_SIZE(who); i++)
        if (*who[i][1] && (other || !strv_env_get(of_sandbox, who[i][0])))
            strv_list_push(&added, xasprintf("%s=%s", who[i][0], who[i][1]));
    if (!strv_env_get(of_sandbox, "PATH"))
        strv_list_push(&added, (char *)"PATH=" PATH_DEFAULT);
    if (e->handover->n_secrets)
        strv_list_push(&added, (char *)HANDOVER_SECRETS_ENV "=" SECRETS_DIR);
    e->env = strv_env_merge((char *const *const[]){of_sandbox, added.v, e->spec->env}, 3);
}

/* ---- in the child ---- */

int exec_child_arrange_stdio(struct exec_entry *e, struct err *err)
{
    bool tty = e->master >= 0;
    int out = tty ? e->in : e->out, errfd = tty ? e->in : e->err;

    if (setsid() < 0)
        return err_sys(err, errno, "start a session");
    if (tty && ioctl(e->in, TIOCSCTTY, 0) < 0)
        return err_sys(err, errno, "take the terminal");
    /* Our descriptors are above 2, because the shim keeps 0 to 2 in use. */
    if (dup2(e->in, 0) < 0 || dup2(out, 1) < 0 || dup2(errfd, 2) < 0)
        return err_sys(err, errno, "set up stdio");
    if (e->status != STATUS_FD && dup3(e->status, STATUS_FD, O_CLOEXEC) < 0)
        return err_sys(err, errno, "set up the status pipe");
    e->status = STATUS_FD;
    if (e->listener < 0) {
        syscall(SYS_close_range, STATUS_FD + 1U, ~0U, 0);
        return 0;
    }
    if (e->listener != LISTENER_FD && dup3(e->listener, LISTENER_FD, O_CLOEXEC) < 0)
        return err_sys(err, errno, "set up the filter's socket");
    e->listener = LISTENER_FD;
    syscall(SYS_close_range, LISTENER_FD + 1U, ~0U, 0);
    return 0;
}

static int exec_child_confine(const struct plan *plan, struct err *err)
{
    if (plan->strict && GUARD("landlock")) {
        int r = landlock_domain("/", err);

        if (r < 0)
            return r;
    }
    if (plan->seccomp && GUARD("seccomp"))
        return seccomp_filter_install(plan->seccomp, plan->seccomp_len, err);
    return 0;
}

_noreturn_ void exec_child_run(const struct exec_entry *e)
{
    struct err err = ERR_INIT;
    int r = command_exec(e->spec->argv, e->env);

    command_explain(e->spec->argv[0], r, &err);
    exec_child_fail(e->status, &err);
}

_noreturn_ static void exec_child_start(struct exec_entry *e)
{
    struct err err = ERR_INIT;

    if (exec_child_arrange_stdio(e, &err) < 0 || exec_child_confine(&e->shim->plan, &err) < 0)
        exec_child_fail(e->status, &err);
    exec_child_run(e);
}

void exec_child_report_started(const struct exec_entry *e, pid_t pid, int pidfd)
{
    int fds[EXEC_STARTED_FDS] = {pidfd};
    struct sup_writer w;
    size_t n = 1;

    if (e->mark >= 0)
        fds[n++] = e->mark;
    if (e->master >= 0)
        fds[n++] = e->master;
    sup_begin(&w, SUP_STARTED, 0);
    sup_put_u64(&w, SUP_TAG_PID, (uint64_t)pid);
    if (sup_finish(&w, NULL) >= 0)
        fd_send(e->status, buf_data(&w.buf), w.buf.len, fds, n, 0);
}

static int exec_child_prepare(struct exec_entry *e, const struct exec_fds *fds, struct err *err)
{
    const struct plan *plan = &e->shim->plan;
    _cleanup_free_ char *workdir = NULL;
    int r;

    r = exec_child_join(e, fds, err);
    if (r < 0)
        return r;
    r = user_resolve(e->spec->user ? e->spec->user : plan->user, &e->user, err);
    if (r < 0)
        return r;
    r = secrets_place(e->handover, &e->user, plan->id_base || plan->sub_uid, err);
    if (r < 0)
        return r;
    r = GUARD("rlimits") ? exec_child_set_limits(plan, exec_child_process_limit(e->shim), err) : 0;
    if (r < 0)
        return r;
    r = identity_become(plan, &e->user, err);
    if (r < 0)
        return r;
    if (e->spec->flags & SUP_EXEC_TTY)
        r = pty_open(e->spec->rows, e->spec->cols, &e->master, &e->in, err);
    else if (e->in < 0)
        r = exec_child_open_null(&e->in, err);
    if (r < 0)
        return r;
    workdir = exec_workdir(e->spec, plan->workdir);
    return exec_child_enter_workdir(workdir, err);
}

/* In a pid namespace whose pid 1 is dying, clone fails with ENOMEM, like a real lack of memory. In
 * that case the pidfd of pid 1 becomes readable at once, or when its last process is reaped. */
static int exec_child_clone_error(const struct shim *s, int errnum)
{
    struct pollfd init = {.fd = s->init.fd, .events = POLLIN};

    if (errnum == ENOMEM && poll(&init, 1, INIT_DEATH_MS) > 0)
        return ESRCH;
    return errnum;
}

_noreturn_ void exec_child_fail_clone(const struct exec_entry *e, int errnum)
{
    struct err err = ERR_INIT;

    if (errnum == EAGAIN) {
        err_set(&err, ERR_LIMIT,
                "cannot start a process: the sandbox is at its limit of %u processes",
                e->shim->plan.pids);
        err_hint(&err, "End some processes in the sandbox, or create it with a higher --pids.");
    } else {
        err_sys(&err, errnum, "start a process in the sandbox");
    }
    exec_child_fail(e->status, &err);
}

struct exec_entry exec_child_entry(const struct shim *s, const struct supervised_exec *x,
                                   const struct exec_fds *fds)
{
    return (struct exec_entry){.shim = s,
                               .spec = &x->spec,
                               .handover = &x->handover,
                               .status = fds->status,
                               .in = fds->in,
                               .out = fds->out,
                               .err = fds->err,
                               .master = -1,
                               .mark = -1,
                               .listener = -1};
}

_noreturn_ void exec_helper(const struct shim *s, const struct supervised_exec *x,
                            const struct exec_fds *fds)
{
    struct exec_entry e = exec_child_entry(s, x, fds);
    struct err err = ERR_INIT;
    int pidfd = -1;
    pid_t pid;

    command_reset_signals();
    umask(022);
    if (exec_child_prepare(&e, fds, &err) < 0)
        exec_child_fail(e.status, &err);
    exec_child_build_env(&e);
    pid = ns_clone(CLONE_PARENT, -1, &pidfd);
    if (pid == 0)
        exec_child_start(&e);
    if (pid < 0)
        exec_child_fail_clone(&e, exec_child_clone_error(s, -pid));
    exec_child_report_started(&e, pid, pidfd);
    _exit(0);
}

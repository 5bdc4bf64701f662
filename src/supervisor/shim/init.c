#include "supervisor/shim/init.h"

#include <errno.h>
#include <grp.h>
#include <linux/close_range.h>
#include <malloc.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/memory-release.h"
#include "lib/os/caps.h"
#include "lib/os/confine.h"
#include "lib/os/listen.h"
#include "lib/os/ns.h"
#include "supervisor/shim/layers.h"
#include "supervisor/shim/setup.h"
#include "supervisor/shim/start-cause.h"

/* Raw system calls change only the calling thread, which is enough: this process has one thread. */
static int shim_init_become_root(const struct plan *plan, struct err *err)
{
    if (!plan->id_base)
        return 0; /* only one id is mapped, and we have it already */
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
        syscall(SYS_setresuid, 0, 0, 0) < 0)
        return err_sys(err, errno, "become root in the sandbox");
    return 0;
}

/*
 * Waits for the layers, which the shim sends after it has written the id maps. Without a range of
 * ids the shim cannot open the layers: it sends an empty message, and we open them here.
 */
static int shim_init_get_layers(const struct init_args *a, struct layers *layers, struct err *err)
{
    int r = layers_receive(layers, a->sock, err);

    if (r < 0 || a->plan->id_base)
        return r;
    return layers_open(layers, a->plan, -1, err);
}

/* The steps that need neither ids nor files, while the shim writes the maps and opens the
 * layers. */
static int shim_init_prepare(const struct init_args *a, struct err *err)
{
    int r;

    /* Podman's seccomp profile allows its containers all that a start needs but this. The name is
     * for people: the container's is as good. */
    if (sethostname(a->plan->name, strlen(a->plan->name)) < 0 && errno != EPERM)
        return err_sys(err, errno, "set the sandbox's host name");
    r = GUARD("network") ? ns_loopback_up(err) : 0;
    if (r < 0)
        return r;
    return GUARD("pid 1") ? caps_bound(CAPS_NONE, err) : 0; /* pid 1 runs no other program */
}

/*
 * We join after all mounts are made: the kernel charges its memory for a mount, and the disk blocks
 * that were read for it, to the cgroup of the process that made it. Some of that memory outlives
 * the sandbox and would keep its memory cgroup alive, which costs every later cgroup operation.
 */
static int shim_init_join_cgroups(const struct init_args *a, struct err *err)
{
    int r = -cgroup_group_enter(a->cgroup, a->group);

    if (r > 0)
        return err_sys(err, r, "join the sandbox's cgroups");
    /* After joining, so that the namespace's root is the sandbox's own cgroup. */
    if (GUARD("cgroup namespace") && unshare(CLONE_NEWCGROUP) < 0)
        return err_sys(err, errno, "make a cgroup namespace");
    return 0;
}

static int shim_init_build(const struct init_args *a, struct layers *layers,
                           int fds[static INIT_FDS], struct err *err)
{
    int r;

    r = shim_init_prepare(a, err);
    if (r < 0)
        return r;
    r = shim_init_get_layers(a, layers, err);
    if (r < 0)
        return r;
    r = shim_init_become_root(a->plan, err);
    if (r < 0)
        return r;
    r = setup_root(a->plan, layers, a->memory_shown, &fds[INIT_FD_MEMINFO], err);
    if (r < 0)
        return r;
    r = shim_init_join_cgroups(a, err);
    if (r < 0 || a->plan->network != PLAN_NETWORK_PACKAGES)
        return r;
    /* The package cache's socket, opened before any command could take the port. */
    return listen_inside(PLAN_PACKAGES_PORT, &fds[INIT_FD_LISTENER], err);
}

static int shim_init_drop_privileges(struct err *err)
{
    int r;

    r = caps_set(CAPS_NONE, err); /* the bounding set is empty already */
    if (r < 0)
        return r;
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        prctl(PR_SET_DUMPABLE, GUARD("not dumpable") ? 0 : 1, 0, 0, 0) < 0)
        return err_sys(err, errno, "set up the process attributes of pid 1");
    return 0;
}

/* Sends READY or the error, with the descriptors that are open. */
static void shim_init_report(int sock, const struct err *err, const int fds[static INIT_FDS])
{
    struct sup_writer w = {0};
    int sent[INIT_FDS];
    uint64_t which = 0;
    size_t n = 0;

    sup_begin(&w, err->code ? SUP_FAILED : SUP_READY, 0);
    if (err->code)
        sup_put_err(&w, err);
    for (int i = 0; i < INIT_FDS && !err->code; i++) {
        if (fds[i] < 0)
            continue;
        sent[n++] = fds[i];
        which |= 1U << i;
    }
    sup_put_u64(&w, SUP_TAG_FLAGS, which);
    if (sup_finish(&w, NULL) >= 0)
        fd_send(sock, buf_data(&w.buf), w.buf.len, sent, n, 0);
    sup_writer_done(&w);
}

/*
 * Only these calls are left to do: give memory back, wait, exit. The filter comes after the report,
 * so that the first exec need not wait for it; until then no process inside can reach pid 1. If the
 * filter fails, pid 1 exits.
 */
static void shim_init_confine(void)
{
    static const int calls[] = {SYS_read, SYS_close, SYS_madvise,         SYS_munmap,
                                SYS_brk,  SYS_exit,  SYS_restart_syscall, SYS_exit_group};

    if (confine_to(calls, ARRAY_SIZE(calls), false, NULL) < 0)
        _exit(1);
}

_noreturn_ static void shim_init_wait(int sock)
{
    char byte;

    for (;;)
        if (read(sock, &byte, 1) <= 0 && errno != EINTR)
            _exit(0);
}

static void shim_init_keep(int *fd, int *next)
{
    if (*fd < 0)
        return;
    dup2(*fd, *next);
    *fd = (*next)++;
}

/* Closes all other descriptors: no descriptor of the host stays in the sandbox. */
static void shim_init_close_all_but(int *sock, int *ready_pipe, int fds[static INIT_FDS])
{
    int next = 0;

    shim_init_keep(sock, &next);
    shim_init_keep(ready_pipe, &next);
    for (int i = 0; i < INIT_FDS; i++)
        shim_init_keep(&fds[i], &next);
    syscall(SYS_close_range, (unsigned)next, ~0U, 0);
}

/* The waiting helper continues at once, while the shim receives our report. */
static void shim_init_signal_ready(int ready_pipe)
{
    if (ready_pipe >= 0 && write(ready_pipe, "", 1) < 0)
        _exit(1);
    fd_close(ready_pipe);
}

_noreturn_ void init_main(const struct init_args *args)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct layers layers;
    int sock = args->sock, ready_pipe = args->ready_pipe, fds[INIT_FDS] = {-1, -1}, r;

    prctl(PR_SET_NAME, "ripcord-init", 0, 0, 0);
    if (GUARD("reaping"))
        signal(SIGCHLD, SIG_IGN);
    signal(SIGPIPE, SIG_IGN);
    setsid();
    umask(022); /* all users inside may read the files that we make */
    layers_init(&layers, args->plan);
    r = shim_init_build(args, &layers, fds, &err);
    if (r < 0)
        start_cause(args->plan, START_STEP_OTHER, NULL, &err);
    layers_done(&layers);
    if (r < 0 || (GUARD("pid 1") && shim_init_drop_privileges(&err) < 0)) {
        shim_init_report(sock, &err, fds);
        _exit(1);
    }
    shim_init_close_all_but(&sock, &ready_pipe, fds);
    shim_init_signal_ready(ready_pipe);
    shim_init_report(sock, &err, fds);
    if (GUARD("pid 1"))
        shim_init_confine();
    for (int i = 0; i < INIT_FDS; i++)
        fd_close(fds[i]);
    malloc_trim(0);
    memory_release();
    shim_init_wait(sock);
}

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
#include "lib/base/resident.h"
#include "lib/os/caps.h"
#include "lib/os/confine.h"
#include "lib/os/listen.h"
#include "lib/os/ns.h"
#include "supervisor/shim/layers.h"
#include "supervisor/shim/setup.h"

/* Being a single-threaded static program, the raw calls are the process's: no need to tell threads.
 */
static int shim_init_become_root(const struct plan *plan, struct err *err)
{
    if (!plan->id_base)
        return 0; /* the one id that is mapped is ours already */
    if (syscall(SYS_setgroups, 0, NULL) < 0 || syscall(SYS_setresgid, 0, 0, 0) < 0 ||
        syscall(SYS_setresuid, 0, 0, 0) < 0)
        return err_sys(err, errno, "become root inside");
    return 0;
}

/*
 * Waits until the shim has written the id maps, which it tells by sending the layers. Without a
 * range of ids it cannot open them for us: an empty message comes, and we open them here.
 */
static int shim_init_get_layers(const struct init_args *a, struct layers *layers, struct err *err)
{
    int r = layers_receive(layers, a->sock, err);

    if (r < 0)
        return r;
    if (!a->plan->id_base)
        r = layers_open(layers, a->plan, -1, err);
    return r;
}

/* What needs neither ids nor files: the shim is still writing the maps and opening the layers. */
static int shim_init_prepare(const struct init_args *a, struct err *err)
{
    int r;

    if (sethostname(a->plan->name, strlen(a->plan->name)) < 0)
        return err_sys(err, errno, "set the host name inside");
    r = GUARD("network") ? ns_loopback_up(err) : 0;
    if (r < 0)
        return r;
    if (GUARD("pid 1"))
        r = caps_bound(CAPS_NONE, err); /* pid 1 runs no other program: it has what it needs */
    return r;
}

/*
 * Only now that all is mounted: what the kernel keeps of a mount, and the blocks of the disk that
 * were touched for it, are charged to who made them. Some of that outlives the sandbox and would
 * hold its memory cgroup, which then goes on costing everybody.
 */
static int shim_init_join_cgroups(const struct init_args *a, struct err *err)
{
    int r = -cgroup_group_enter(a->cgroup, a->group);

    if (r > 0)
        return err_sys(err, r, "join the sandbox's cgroups");
    /* After joining, so that the namespace's root is the sandbox's own place. */
    if (GUARD("cgroup namespace") && unshare(CLONE_NEWCGROUP) < 0)
        return err_sys(err, errno, "make a cgroup namespace");
    return 0;
}

static int shim_init_build(const struct init_args *a, struct layers *layers,
                           int fds[static INIT_FDS], struct err *err)
{
    int r;

    r = shim_init_prepare(a, err);
    if (r >= 0)
        r = shim_init_get_layers(a, layers, err);
    if (r >= 0)
        r = shim_init_become_root(a->plan, err);
    if (r >= 0)
        r = setup_root(a->plan, layers, a->memory_shown, &fds[INIT_FD_MEMINFO], err);
    if (r >= 0)
        r = shim_init_join_cgroups(a, err);
    /* The sandbox's way to its package registry, there before any command could take the port. */
    if (r >= 0 && a->plan->network == PLAN_NETWORK_PACKAGES)
        r = listen_inside(PLAN_PACKAGES_PORT, &fds[INIT_FD_LISTENER], err);
    return r;
}

static int shim_init_give_up_everything(struct err *err)
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

/* The descriptors go to the shim, those that there are. */
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
 * What is left to do: give memory back, wait, end. After the report, as nobody inside can speak to
 * pid 1 and the first exec need not wait for this; a pid 1 without its filter is none at all.
 */
static void shim_init_confine_init(void)
{
    static const int calls[] = {SYS_read, SYS_close, SYS_madvise,         SYS_munmap,
                                SYS_brk,  SYS_exit,  SYS_restart_syscall, SYS_exit_group};

    if (confine_to(calls, ARRAY_SIZE(calls), false, NULL) < 0)
        _exit(1);
}

_noreturn_ static void shim_init_be_there(int sock)
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

/* Everything else goes: no descriptor of the host stays in the sandbox. */
static void shim_init_close_all_but(int *sock, int *ready_pipe, int fds[static INIT_FDS])
{
    int next = 0;

    shim_init_keep(sock, &next);
    shim_init_keep(ready_pipe, &next);
    for (int i = 0; i < INIT_FDS; i++)
        shim_init_keep(&fds[i], &next);
    syscall(SYS_close_range, (unsigned)next, ~0U, 0);
}

/* Whoever waits for it goes on at once, the shim hears of it meanwhile. */
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
    umask(022); /* what is made for the sandbox is for all its users to read */
    layers_init(&layers, args->plan);
    r = shim_init_build(args, &layers, fds, &err);
    layers_done(&layers);
    if (r >= 0)
        r = GUARD("pid 1") ? shim_init_give_up_everything(&err) : 0;
    if (r >= 0) {
        shim_init_close_all_but(&sock, &ready_pipe, fds);
        shim_init_signal_ready(ready_pipe);
    }
    shim_init_report(sock, &err, fds);
    if (r < 0)
        _exit(1);
    if (GUARD("pid 1"))
        shim_init_confine_init();
    for (int i = 0; i < INIT_FDS; i++)
        fd_close(fds[i]);
    malloc_trim(0);
    resident_release();
    shim_init_be_there(sock);
}

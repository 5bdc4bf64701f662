/*
 * Starting the sandbox: cgroups, clone3 into new namespaces, id maps, layers; then pid 1 builds the
 * inside and reports. The code is straight-line and blocks, with a deadline, because the shim has
 * no other work before the sandbox exists. A failure undoes the cgroups and kills pid 1; the
 * namespaces and detached mounts end with the processes that hold them.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/fsuid.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/log.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"
#include "lib/os/seccomp-filter.h"
#include "lib/os/submap.h"
#include "supervisor/shim/disk.h"
#include "supervisor/shim/enter.h"
#include "supervisor/shim/init.h"
#include "supervisor/shim/layers.h"
#include "supervisor/shim/own-proc.h"
#include "supervisor/shim/owner.h"
#include "supervisor/shim/proc-view.h"
#include "supervisor/shim/shim.h"
#include "supervisor/shim/start-cause.h"

enum { START_TIMEOUT_SEC = 30 };

static int shim_start_open_cgroups(const struct shim *s, struct cgroup *ret, uint32_t *unenforced,
                                   struct err *err)
{
    const struct plan *p = &s->plan;
    struct cgroup_limits limits = {.memory = p->memory, .cpu_milli = p->cpu_milli, .pids = p->pids};
    int r = cgroup_open(ret, p->cgroup_parent, p->root_id, p->sandbox_id, err);

    if (r >= 0)
        *unenforced = cgroup_limit(ret, GUARD("limits") ? &limits : &(struct cgroup_limits){0});
    return r;
}

int shim_restore_cgroups(struct shim *s, struct err *err)
{
    struct cgroup again;
    int r = shim_start_open_cgroups(s, &again, &s->sup.unenforced, err);

    if (r < 0)
        return r;
    log_info("sandbox %s: somebody removed its empty cgroup; made it again", s->plan.sandbox_id);
    cgroup_close(&s->cgroup);
    s->cgroup = again;
    return 0;
}

static int shim_start_make_cgroups(struct shim *s, struct err *err)
{
    int r = shim_start_open_cgroups(s, &s->cgroup, &s->sup.unenforced, err);

    if (r < 0)
        return r;
    if (s->sup.unenforced & s->plan.required) {
        err_set(err, ERR_UNSUPPORTED, "this machine cannot enforce the requested limits:%s%s%s",
                s->sup.unenforced & LIMIT_MEMORY ? " memory" : "",
                s->sup.unenforced & LIMIT_CPUS ? " cpus" : "",
                s->sup.unenforced & LIMIT_PIDS ? " pids" : "");
        return err_hint(err, "Limits need cgroups with these controllers. Run `ripcord doctor` to "
                             "see how to enable them.");
    }
    return cgroup_group_open_init(&s->cgroup, &s->init_group, err);
}

/* False: the plan has no subordinate ids, or the machine refuses to map them. */
static bool shim_start_map_sub_ids(struct shim *s)
{
    const struct submap map = {s->plan.sub_uid, s->plan.sub_gid};
    _cleanup_err_ struct err why = ERR_INIT;

    if (!map.uid)
        return false;
    if (submap_write(s->init_pid, &map, &why) >= 0)
        return true;
    log_warn("sandbox %s: only one user id is available inside: %s", s->plan.sandbox_id, why.msg);
    s->plan.sub_uid = s->plan.sub_gid = 0;
    return false;
}

static int shim_start_write_maps(struct shim *s, struct err *err)
{
    const struct plan *p = &s->plan;
    struct ns_map range = {0, GUARD("own ids") ? p->id_base : 0, PLAN_ID_COUNT, NULL};
    struct ns_map uid = {PLAN_AGENT_ID, geteuid(), 1, NULL},
                  gid = {PLAN_AGENT_ID, getegid(), 1, NULL};
    int r;

    if (shim_start_map_sub_ids(s))
        return 0;
    if (p->id_base)
        r = ns_write_maps(s->init_pid, &range, &range, false, err);
    else
        r = ns_write_maps(s->init_pid, &uid, &gid, true, err);
    return r < 0 ? err_wrap(err, "map the sandbox's ids") : 0;
}

/* Where the sandbox's files are. */
struct shim_data {
    int disk; /* the mount of its disk image; -1: it has none */
    int dir;  /* the folder of its layers, if its size is limited; else -1 */
};

static void shim_data_done(struct shim_data *d)
{
    fd_close(d->disk);
    fd_close(d->dir);
}

static int shim_start_open_data(struct shim *s, struct shim_data *d, struct err *err)
{
    const struct plan *p = &s->plan;
    int r = 0;

    if (p->disk_image)
        r = disk_mount(p->disk_image, p->ephemeral, &d->disk, err);
    if (r < 0)
        return r;
    if (p->disk_image)
        r = dir_open(d->disk, ".", &d->dir, err);
    else if (p->disk_quota)
        r = dir_open(AT_FDCWD, p->data_dir, &d->dir, err);
    if (r < 0)
        return r;
    r = d->dir >= 0 ? disk_release_reserve(d->dir, err) : 0;
    if (r < 0)
        return r;
    if (p->disk_image) {
        r = disk_renew(d->dir, p->hash ? p->hash : "", err);
        if (r < 0)
            return r;
        if (r > 0)
            s->disk_with_old_root = fcntl(d->dir, F_DUPFD_CLOEXEC, 3);
    }
    return layers_prepare(p, d->disk, err);
}

/*
 * The sandbox is up. Without a reserve, it may not start again from a full disk. The ids of the
 * disk's mount are mapped by now, so only the sandbox's own root can make folders there.
 */
static void shim_start_reserve(const struct shim *s, const struct shim_data *d)
{
    uint32_t id = s->plan.disk_image ? s->plan.id_base : 0;
    _cleanup_err_ struct err err = ERR_INIT;
    int r;

    if (d->dir < 0 || s->plan.ephemeral)
        return;
    setfsgid(id);
    setfsuid(id);
    r = disk_make_reserve(d->dir, &err);
    setfsuid(0);
    setfsgid(0);
    if (r < 0)
        log_warn("sandbox %s: %s", s->plan.sandbox_id, err.msg);
}

void shim_drop_old_root(struct supervisor *sup)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct shim *s = shim_of(sup);

    if (s->disk_with_old_root >= 0 && disk_drop_old(s->disk_with_old_root, &err) < 0)
        log_warn("sandbox %s: %s", s->plan.sandbox_id, err.msg);
    s->disk_with_old_root = fd_close(s->disk_with_old_root);
}

/* Takes the disk, so that afterwards only the sandbox holds it. */
static int shim_start_send_layers(struct shim *s, int *disk, struct err *err)
{
    _cleanup_(layers_done) struct layers layers;
    _cleanup_close_ int userns = -1;
    int r;

    layers_init(&layers, &s->plan);
    layers.fd[LAYER_DATA] = TAKE_FD(*disk);
    if (s->plan.id_base) {
        r = enter_open_user(s, &userns, err);
        if (r < 0)
            return r;
        r = layers_open(&layers, &s->plan, userns, err);
        if (r < 0)
            return r;
        r = own_proc_is_needed(s) ? own_proc_mount(s, &layers.fd[LAYER_PROC], err) : 0;
        if (r < 0)
            return r;
    }
    return layers_send(&layers, s->init_sock, err);
}

/* SUP_TAG_FLAGS of pid 1's answer says which descriptors of enum init_fd came, in that order. */
static int shim_start_take_fds(struct shim *s, const char *packet, size_t len, const int *fds,
                               size_t n, struct err *err)
{
    int *const places[INIT_FDS] = {&s->meminfo_fd, &s->listener_fd};
    struct sup_reader rd;
    struct sup_value v;
    uint64_t which = 0;
    size_t taken = 0;
    int r;

    r = sup_read(&rd, packet, len, err);
    while (r >= 0 && (r = sup_next(&rd, &v, err)) > 0)
        if (v.tag == SUP_TAG_FLAGS)
            which = v.u64;
    for (int i = 0; i < INIT_FDS && taken < n; i++)
        if (which & (1U << i))
            *places[i] = fds[taken++];
    while (taken < n)
        fd_close(fds[taken++]);
    return r;
}

/*
 * The command of an ephemeral sandbox arrives directly after its plan. The helper for that command
 * prepares itself while pid 1 builds, and waits at the ready pipe: pid 1 writes one byte into it
 * when the inside is complete. Sandboxes with an open network have no ready pipe, because the shim
 * sets that network up after pid 1 has finished.
 */
static int shim_start_make_ready_pipe(struct shim *s, int *ret_inside, struct err *err)
{
    int fds[2];

    if (!s->plan.ephemeral || s->plan.network == PLAN_NETWORK_OPEN)
        return 0;
    if (pipe2(fds, O_CLOEXEC) < 0)
        return err_sys(err, errno, "make a pipe");
    s->ready_pipe = fds[0];
    *ret_inside = fds[1];
    return 0;
}

/* Waits for a message of pid 1. Until then it takes the first command, if a ready pipe exists. */
static int shim_start_poll_init(struct shim *s, struct err *err)
{
    struct pollfd p[2] = {{.fd = s->init_sock, .events = POLLIN},
                          {.fd = s->ready_pipe >= 0 ? SUP_FD_CONTROL : -1, .events = POLLIN}};
    struct deadline by = deadline_in(START_TIMEOUT_SEC * USEC_PER_SEC);

    for (;;) {
        int r = poll(p, ARRAY_SIZE(p), deadline_ms(&by));

        if (r < 0 && errno == EINTR)
            continue;
        if (r <= 0)
            return err_set(err, ERR_TIMEOUT, "building the sandbox took longer than %d s",
                           START_TIMEOUT_SEC);
        if (p[0].revents)
            return 0;
        r = peer_early(&s->sup, SUP_FD_CONTROL, err);
        if (r < 0)
            return r;
        if (r == 0 || s->sup.execs) /* later messages wait for the loop */
            p[1].fd = -1;
    }
}

/* Waits for READY. An error that stopped pid 1 becomes our error. */
static int shim_start_await_init(struct shim *s, struct err *err)
{
    char *packet = supervisor_io(&s->sup);
    int fds[INIT_FDS];
    size_t n_fds = INIT_FDS;
    ssize_t n;
    int r;

    r = shim_start_poll_init(s, err);
    if (r < 0)
        return r;
    n = fd_recv(s->init_sock, packet, SUP_MSG_MAX, fds, &n_fds, 0);
    if (n == 0)
        return err_set(err, ERR_ENGINE, "pid 1 of the sandbox ended during the start");
    if (n < 0)
        return err_sys(err, (int)-n, "receive from pid 1 of the sandbox");
    r = sup_read_err(packet, (size_t)n, err);
    if (r < 0)
        return r;
    return shim_start_take_fds(s, packet, (size_t)n, fds, n_fds, err);
}

/*
 * A user namespace belongs to the user that makes it. The kernel counts limited resources (inotify
 * instances, message queues, locked memory, signals) of its processes for that user too. If root
 * made every namespace, one sandbox could use up these resources for all others and for root. So
 * the first of the sandbox's own ids makes each namespace.
 *
 * A process that changes its id is not dumpable, and its copies are not either. Where we join
 * namespaces by descriptor, pid 1 must be, until we have opened them (enter.h).
 */
static pid_t shim_start_clone_owned(struct shim *s, int *ret_pidfd)
{
    uint64_t flags = CLONE_NEWUSER | CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWUTS;
    pid_t pid;
    int r = owner_act(s, true);

    if (r < 0)
        return r;
    if (s->by_descriptor)
        prctl(PR_SET_DUMPABLE, 1, 0, 0, 0);
    if (GUARD("network"))
        flags |= CLONE_NEWNET;
    if (GUARD("ipc"))
        flags |= CLONE_NEWIPC;
    pid = ns_clone(flags, cgroup_group_clone_fd(&s->init_group), ret_pidfd);
    if (pid == 0)
        return pid;
    r = owner_act(s, false);
    if (r >= 0 || pid < 0)
        return r < 0 ? r : pid;
    pidfd_signal(*ret_pidfd, SIGKILL);
    pidfd_reap(*ret_pidfd, true, NULL, NULL);
    *ret_pidfd = fd_close(*ret_pidfd);
    return r;
}

static int shim_start_clone_init(struct shim *s, struct err *err)
{
    _cleanup_close_ int ready_pipe = -1, pidfd = -1;
    int pair[2], r;
    pid_t pid;

    if (shim_start_make_ready_pipe(s, &ready_pipe, err) < 0)
        return -ERR_SYSTEM;
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "make a socket pair");
    pid = shim_start_clone_owned(s, &pidfd);
    if (pid == 0) {
        struct init_args args = {&s->plan,        &s->cgroup, &s->init_group,
                                 s->memory_shown, pair[1],    ready_pipe};

        close(pair[0]); /* else pid 1 would not notice the end of the shim */
        init_main(&args);
    }
    fd_close(pair[1]);
    if (pid < 0) {
        fd_close(pair[0]);
        err_sys(err, -pid, "make the sandbox's namespaces");
        start_cause(&s->plan, START_STEP_NAMESPACES, NULL, err);
        return -(int)err->code;
    }
    s->init_pid = pid;
    s->init_sock = pair[0];
    r = source_add(&s->sup, &s->init, pidfd, EPOLLIN, stop_on_init, err);
    if (r < 0) {
        pidfd_signal(pidfd, SIGKILL);
        pidfd_reap(pidfd, true, NULL, NULL);
        return r;
    }
    TAKE_FD(pidfd);
    return 0;
}

/* If both sides failed, pid 1's error names the cause; ours says only that pid 1 ended. */
static void shim_start_prefer_init_error(struct shim *s, struct err *err)
{
    _cleanup_err_ struct err inner = ERR_INIT;
    char *packet = supervisor_io(&s->sup);
    ssize_t n;

    if (s->init_sock < 0)
        return;
    n = fd_recv(s->init_sock, packet, SUP_MSG_MAX, NULL, NULL, MSG_DONTWAIT);
    if (n > 0 && sup_read_err(packet, (size_t)n, &inner) < 0)
        err_move(err, &inner);
}

/* The helper of a first command may have started the command already. That process is our child,
 * and the kernel does not let pid 1 end before it is reaped. So reap every child until pid 1. */
static void shim_start_reap_init(const struct shim *s)
{
    siginfo_t si;
    int r;

    do
        r = waitid(P_ALL, 0, &si, WEXITED | __WALL);
    while ((r == 0 && si.si_pid != s->init_pid) || (r < 0 && errno == EINTR));
}

static void shim_start_undo(struct shim *s)
{
    execs_drop(&s->sup);
    if (s->init.fd >= 0) {
        pidfd_signal(s->init.fd, SIGKILL);
        shim_start_reap_init(s);
        source_close(&s->sup, &s->init);
    }
    cgroup_group_done(&s->init_group);
    cgroup_remove(&s->cgroup, USEC_PER_SEC, NULL);
    cgroup_close(&s->cgroup);
}

static int shim_start_build(struct shim *s, struct err *err)
{
    _cleanup_(shim_data_done) struct shim_data data = {.disk = -1, .dir = -1};
    int r;

    r = seccomp_filter_possible(err);
    if (r < 0)
        return r;
    r = shim_start_make_cgroups(s, err);
    if (r < 0)
        return r;
    r = shim_start_open_data(s, &data, err);
    if (r < 0)
        return r;
    s->by_descriptor = enter_by_descriptor(s);
    s->memory_shown = proc_view_memory(s->sup.unenforced & LIMIT_MEMORY ? 0 : s->plan.memory);
    r = shim_start_clone_init(s, err);
    if (r < 0)
        return r;
    r = shim_start_write_maps(s, err);
    if (r < 0)
        return r;
    r = enter_open(s, err);
    if (r < 0)
        return r;
    r = shim_start_send_layers(s, &data.disk, err);
    if (r < 0)
        return r;
    /* RUNNING before pid 1 has finished: the first command may arrive while we wait for it, and
     * exec_start() refuses commands in every other state. */
    s->sup.state = SUP_RUNNING;
    r = shim_start_await_init(s, err);
    if (r < 0)
        return r;
    s->ready_pipe = fd_close(s->ready_pipe); /* later commands need not wait */
    r = network_start(s, err);
    if (r < 0)
        return r;
    shim_start_reserve(s, &data);
    return 0;
}

int sandbox_start(struct shim *s, struct err *err)
{
    if (s->plan.confined)
        return confined_start(s, err);
    if (shim_start_build(s, err) < 0) {
        s->ready_pipe = fd_close(s->ready_pipe);
        shim_start_prefer_init_error(s, err);
        start_cause(&s->plan, START_STEP_OTHER, NULL, err);
        shim_start_undo(s);
        return -(int)err->code;
    }
    s->refresh_at = time_mono() + PROC_VIEW_INTERVAL;
    s->sup.pid = s->init_pid;
    return 0;
}

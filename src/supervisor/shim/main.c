#include "supervisor/shim/main.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/keyctl.h>
#include <poll.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/log.h"
#include "lib/os/surroundings.h"
#include "supervisor/shim/confined.h"
#include "supervisor/shim/enter.h"
#include "supervisor/shim/reaper.h"
#include "supervisor/shim/remove.h"
#include "supervisor/shim/shim.h"

static int shim_freeze_cgroup(struct shim *s, bool on, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    int r = cgroup_freeze(&s->cgroup, on, &why);

    if (r >= 0)
        return 0;
    if (why.errnum != ENOENT && why.errnum != ENODEV)
        return err_move(err, &why);
    r = shim_restore_cgroups(s, err);
    return r < 0 ? r : cgroup_freeze(&s->cgroup, on, err);
}

static int shim_freeze(struct supervisor_peer *p, uint64_t seq _unused_, bool on, struct err *err)
{
    struct shim *s = shim_of(p->sup);
    struct cgroup *c = &s->cgroup;

    if (s->confined)
        return err_set(err, ERR_UNSUPPORTED, "isolation 'confined' cannot pause a sandbox");
    if (shim_freeze_cgroup(s, on, err) >= 0 && cgroup_await_frozen(c, on, err) >= 0)
        return 0;
    if (on)
        cgroup_freeze(c, false, NULL);
    return -(int)err->code;
}

static int shim_stats(struct supervisor_peer *p, uint64_t seq, struct err *err _unused_)
{
    struct shim *s = shim_of(p->sup);
    struct cgroup_usage u;
    struct sup_writer w;

    cgroup_usage(&s->cgroup, NULL, &u);
    sup_begin(&w, SUP_STATS, seq);
    sup_put_stat(&w, "memory", u.memory);
    sup_put_stat(&w, "memory_peak", u.memory_peak);
    sup_put_stat(&w, "memory_limit", s->plan.memory);
    sup_put_stat(&w, "cpu_usec", u.cpu_usec);
    sup_put_stat(&w, "pids", u.pids);
    sup_put_stat(&w, "pids_limit", s->plan.pids);
    sup_put_stat(&w, "pids_denied", cgroup_pids_denied(&s->cgroup));
    sup_put_stat(&w, "execs", execs_live(&s->sup));
    peer_send(p, &w, -1);
    return 1;
}

static int shim_listener(struct supervisor *sup, struct err *err)
{
    int fd = shim_of(sup)->listener_fd;

    if (fd < 0)
        return err_set(err, ERR_NOT_FOUND, "the sandbox was started without a package cache");
    fd = fcntl(fd, F_DUPFD_CLOEXEC, 0);
    return fd < 0 ? err_sys(err, errno, "duplicate the package cache's socket") : fd;
}

/* The pidfd of pid 1 is readable as soon as pid 1 is dead. */
static bool shim_has_died(const struct supervisor *sup)
{
    const struct shim *s = container_of(sup, struct shim, sup);
    struct pollfd p = {.fd = s->init.fd, .events = POLLIN};

    return s->init.fd >= 0 && poll(&p, 1, 0) > 0;
}

static const struct supervisor_ops shim_ops = {
    .exec_size = sizeof(struct shim_exec),
    .exec_init = shim_exec_init,
    .exec_done = shim_exec_done,
    .launch = shim_exec_launch,
    .signal = shim_exec_signal,
    .kill = shim_exec_kill,
    .terminal = shim_exec_terminal,
    .resize = shim_exec_resize,
    .stdin_close = shim_exec_stdin_close,
    .has_survivors = shim_exec_has_survivors,
    .fill = shim_exec_fill,
    .over = shim_exec_over,
    .freeze = shim_freeze,
    .stats = shim_stats,
    .dial = job_dial,
    .copy = job_copy,
    .files = job_files,
    .listener = shim_listener,
    .settled = shim_drop_old_root,
    .forget = jobs_forget,
    .has_died = shim_has_died,
    .stopping = shim_stopping,
    .shut_down = shim_shut_down,
    .finish = shim_clean_up,
    .timer_at = shim_timer_at,
    .timer = shim_timer,
};

static void shim_init(struct shim *s)
{
    *s = (struct shim){.init.fd = -1,
                       .init_sock = -1,
                       .ready_pipe = -1,
                       .meminfo_fd = -1,
                       .listener_fd = -1,
                       .disk_with_old_root = -1,
                       .memory_check_at = DEADLINE_NEVER};
    supervisor_init(&s->sup, &shim_ops);
    s->init_group = (struct cgroup_group)CGROUP_GROUP_INIT;
    for (int i = 0; i < SHIM_NAMESPACES; i++)
        s->namespaces[i] = -1;
    for (int t = 0; t < CGROUP_TREES; t++)
        s->cgroup.root[t] = s->cgroup.dir[t] = s->cgroup.tasks[t] = -1;
}

static int shim_read_plan(struct shim *s, int fd, struct err *err)
{
    int r = plan_read(fd, &s->plan, err);

    guard_environment(s->plan.env);
    s->sup.sandbox_id = s->plan.sandbox_id;
    s->sup.name = s->plan.name;
    s->sup.hash = s->plan.hash;
    s->sup.isolation = s->plan.confined ? "confined" : s->plan.strict ? "strict" : NULL;
    s->sup.journal_budget = s->plan.journal_budget;
    s->sup.ephemeral = s->plan.ephemeral;
    s->sup.tied = s->plan.bare; /* the result of a build step is of no use without its builder */
    return r;
}

/* Waits for the plan. 0: the daemon closed the socket; no sandbox is needed. */
static int shim_await_plan(struct shim *s, struct err *err)
{
    _cleanup_close_ int plan = -1, log = -1;
    int fds[PLAN_FDS], r;

    cgroup_learn(NULL);
    s->masked_proc = surroundings_proc_is_masked();
    r = plan_take(SUP_FD_CONTROL, fds, err);
    if (r <= 0)
        return r;
    plan = fds[PLAN_FD_PLAN];
    log = fds[PLAN_FD_LOG];
    if (r > PLAN_FD_LISTENER)
        s->listener_fd = fds[PLAN_FD_LISTENER];
    dup2(log, STDERR_FILENO);
    r = shim_read_plan(s, plan, err);
    return r < 0 ? r : 1;
}

static int shim_run(struct shim *s, char *id)
{
    _cleanup_err_ struct err err = ERR_INIT;
    int r;

    r = shim_await_plan(s, &err);
    if (r == 0)
        return 1;
    /*
     * A child inherits the session keyring of its parent: the sandbox would have the keyring of the
     * user that started the daemon. The call fails if the kernel has no keyrings or the user's
     * quota is used up. That is safe, because commands cannot use keys anyway
     * (lib/os/seccomp-table.c).
     */
    if (GUARD("keyring"))
        syscall(SYS_keyctl, KEYCTL_JOIN_SESSION_KEYRING, NULL, 0, 0, 0);
    if (r < 0 || supervisor_open(&s->sup, s->plan.run_dir, s->plan.exec_dir, &err) < 0 ||
        sandbox_start(s, &err) < 0) {
        supervisor_fail(&s->sup, &err);
        return 1;
    }
    /* Shows the sandbox id in `ps`. The daemon has left room for it in argv. */
    if (id && strlen(id) == strlen(s->plan.sandbox_id))
        memcpy(id, s->plan.sandbox_id, strlen(id));
    if (supervisor_serve(&s->sup, &err) < 0) {
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
    supervisor_hold_fds();
    prctl(PR_SET_NAME, "ripcord-shim", 0, 0, 0);
    r = shim_run(&s, argc > 1 ? argv[1] : NULL);
    supervisor_done(&s.sup);
    reapers_free(&s);
    confined_free(s.confined);
    enter_close(&s);
    cgroup_close(&s.cgroup);
    plan_done(&s.plan);
    return r;
}

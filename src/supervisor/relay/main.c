#include "supervisor/relay/main.h"

#include <errno.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/log.h"
#include "lib/os/cgroup.h"
#include "lib/os/pidfd.h"
#include "lib/os/static-program.h"
#include "supervisor/relay/packages-listener.h"
#include "supervisor/relay/relay.h"

static void relay_finish(struct supervisor *sup)
{
    jobs_end(relay_of(sup));
    packages_tunnel_end(relay_of(sup));
}

/* The error code must differ from ERR_UNSUPPORTED, which means a supervisor without this request:
 * here the message has the reason. */
static int relay_packages_listener(struct supervisor *sup, struct err *err)
{
    struct relay *r = relay_of(sup);
    int fd = r->packages_listener < 0 ? -1 : fcntl(r->packages_listener, F_DUPFD_CLOEXEC, 0);

    if (r->packages_listener >= 0)
        return fd < 0 ? err_sys(err, errno, "duplicate the package cache's socket") : fd;
    return err_set(err, ERR_ENGINE, "%s",
                   r->packages_err.msg ? r->packages_err.msg
                                       : "the sandbox was started without a package cache");
}

static uint64_t relay_timer_at(const struct supervisor *sup)
{
    const struct relay *r = container_of(sup, const struct relay, sup);

    return MIN(
        MIN(MIN(r->stop_at, r->orphans_at), MIN(r->memory_check_at, packages_tunnel_next(r))),
        MIN(guest_streams_next(r), relay_execs_next(r)));
}

static void relay_timer(struct supervisor *sup, uint64_t now)
{
    struct relay *r = relay_of(sup);

    guest_streams_expire(r, now);
    relay_execs_expire(r, now);
    packages_tunnel_expire(r, now);
    if (now >= r->stop_at)
        control_retry(r);
    if (now >= r->orphans_at)
        loss_retry(r);
    if (now >= r->memory_check_at)
        relay_memory_check(r, now);
}

static bool relay_has_died(const struct supervisor *sup)
{
    return container_of(sup, const struct relay, sup)->dead;
}

static const struct supervisor_ops relay_ops = {
    .exec_size = sizeof(struct relay_exec),
    .exec_init = relay_exec_init,
    .exec_done = relay_exec_done,
    .launch = relay_exec_launch,
    .signal = relay_exec_signal,
    .kill = relay_exec_kill,
    .terminal = relay_exec_terminal,
    .resize = relay_exec_resize,
    .stdin_close = relay_exec_stdin_close,
    .has_survivors = relay_exec_has_survivors,
    .fill = relay_exec_fill,
    .over = relay_exec_over,
    .readable = relay_exec_readable,
    .freeze = control_freeze,
    .stats = control_stats,
    .dial = job_dial,
    .copy = job_copy,
    .files = job_files,
    .listener = relay_packages_listener,
    .forget = jobs_forget,
    .has_died = relay_has_died,
    .stopping = control_thaw,
    .shut_down = control_stop,
    .finish = relay_finish,
    .timer_at = relay_timer_at,
    .timer = relay_timer,
};

void relay_gone(struct relay *r)
{
    if (r->sup.gone)
        return;
    if (r->sup.state != SUP_STOPPING)
        log_info("sandbox %s: its container no longer runs", r->plan.sandbox_id);
    r->sup.gone = r->sup.shut = true;
    r->stop_at = DEADLINE_NEVER;
    stop_begin(&r->sup, 0);
    relay_execs_gone(r);
}

/* ---- start and end ---- */

static void relay_init(struct relay *r)
{
    *r = (struct relay){.results.fd = -1,
                        .results_end = -1,
                        .packages_listener = -1,
                        .stop_at = DEADLINE_NEVER,
                        .orphans_at = DEADLINE_NEVER,
                        .memory_check_at = DEADLINE_NEVER};
    supervisor_init(&r->sup, &relay_ops);
    packages_tunnel_init(r);
}

static int relay_read_plan(struct relay *r, struct err *err)
{
    int n = relay_plan_read(SUP_FD_PLAN, &r->plan, err);

    fd_close(SUP_FD_PLAN);
    r->sup.sandbox_id = r->plan.sandbox_id;
    r->sup.name = r->plan.name;
    r->sup.hash = r->plan.hash;
    r->sup.journal_budget = r->plan.journal_budget;
    r->sup.ephemeral = r->plan.ephemeral;
    r->sup.unenforced = r->plan.unenforced;
    return n;
}

static int relay_find_container(struct relay *r, struct err *err)
{
    _cleanup_endpoint_ struct docker_endpoint endpoint = {0};
    struct deadline by = deadline_in(RELAY_CALL_TIMEOUT);
    struct relay_container container;
    int n;

    n = docker_endpoint_parse(r->plan.endpoint, &endpoint, err);
    if (n < 0)
        return n;
    n = docker_open(&endpoint, &by, &r->docker, err);
    if (n < 0)
        return n;
    n = call_inspect(r, &by, &container, err);
    if (n < 0)
        return n;
    if (container.life == LIFE_GONE)
        return err_set(err, ERR_ENGINE, "the container ended immediately after its start");
    r->sup.pid = container.pid;
    r->sup.state = container.life == LIFE_PAUSED ? SUP_PAUSED : SUP_RUNNING;
    return 0;
}

/*
 * On cgroup v1 the container's memory limit does not contain the queues of its IP sockets. The
 * Engine API has a field for their limit, but runc ignores it. So we set it in the container's
 * cgroup, if that is on this machine and ours to change.
 */
static void relay_limit_sockets(struct relay *r)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_close_ int pidfd = -1;

    r->here = !r->plan.packages_inside && pidfd_open_pid(r->sup.pid, &pidfd, &err) >= 0 &&
              pidfd_in_cgroup(pidfd, r->sup.pid, r->plan.container);
    if (!r->here || !r->plan.memory || (r->plan.unenforced & LIMIT_MEMORY))
        return;
    if (cgroup_limit_sockets(r->sup.pid, r->plan.memory, &err) < 0)
        log_warn("sandbox %s: memory of its sockets is not limited: %s", r->plan.sandbox_id,
                 err.msg);
}

/* The plan holds the daemon's assumption about the engine's machine; the check here decides. */
static int relay_open_near(struct relay *r, struct err *err)
{
    if (r->plan.packages_inside)
        return err_set(err, ERR_UNSUPPORTED, "the container's network is on another machine");
    return packages_listener_open(r->plan.container, r->sup.pid, (uint16_t)r->plan.packages_port,
                                  &r->packages_listener, err);
}

/* A container without the listener behaves as one of network `none`, and LISTENER is answered with
 * the reason. Called before the first thread starts and before any command could take the port. */
static void relay_open_packages_listener(struct relay *r)
{
    _cleanup_err_ struct err near = ERR_INIT;

    if (!r->plan.packages_port || relay_open_near(r, &near) >= 0)
        return;
    log_info("sandbox %s: the package cache is reached through the guest: %s", r->plan.sandbox_id,
             near.msg);
    if (packages_tunnel_open(r, &r->packages_listener, &r->packages_err) >= 0)
        return;
    err_wrap(&r->packages_err, "%s; listener inside the container", near.msg);
    log_warn("sandbox %s: the package cache is not reachable: %s", r->plan.sandbox_id,
             r->packages_err.msg);
}

static int relay_bring_up(struct relay *r, struct err *err)
{
    int n;

    n = relay_read_plan(r, err);
    if (n < 0)
        return n;
    n = supervisor_open(&r->sup, r->plan.run_dir, r->plan.exec_dir, err);
    if (n < 0)
        return n;
    n = works_open(r, err);
    if (n < 0)
        return n;
    n = relay_find_container(r, err);
    if (n < 0)
        return n;
    relay_limit_sockets(r);
    relay_open_packages_listener(r);
    return watch_start(r, err);
}

static int relay_run(struct relay *r)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (relay_bring_up(r, &err) < 0) {
        supervisor_fail(&r->sup, &err);
        return 1;
    }
    if (supervisor_serve(&r->sup, &err) < 0) {
        log_error("sandbox %s: the relay gives up: %s", r->plan.sandbox_id, err.msg);
        return 1;
    }
    return 0;
}

/*
 * Threads may still be in a call to an engine that hangs. They hold nothing that needs cleanup, so
 * we exit without waiting for them.
 */
int relay_main(int argc _unused_, char **argv _unused_)
{
    static struct relay r; /* static, because threads may use it until the process ends */
    int status;

    static_program_init();
    json_need_memory();
    relay_init(&r);
    supervisor_hold_fds();
    prctl(PR_SET_NAME, "ripcord-relay", 0, 0, 0);
    status = relay_run(&r);
    _exit(status);
}

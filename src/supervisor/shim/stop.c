/*
 * The end of a native sandbox: the shim kills pid 1, and the kernel then kills every process in the
 * pid namespace.
 */
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include "lib/base/log.h"
#include "lib/os/pidfd.h"
#include "supervisor/shim/confined.h"
#include "supervisor/shim/shim.h"

enum { CGROUP_WAIT_SEC = 2 };
#define STRAYS_EVERY (20 * USEC_PER_MSEC)

/* Frozen processes do not handle signals. */
void shim_stopping(struct supervisor *sup)
{
    if (sup->state == SUP_PAUSED)
        cgroup_freeze(&shim_of(sup)->cgroup, false, NULL);
}

void shim_shut_down(struct supervisor *sup)
{
    if (shim_of(sup)->confined) {
        confined_shut_down(shim_of(sup));
        return;
    }
    pidfd_signal(shim_of(sup)->init.fd, SIGKILL);
    shim_of(sup)->strays_at = time_mono() + STRAYS_EVERY;
}

/*
 * If a helper is killed after it has cloned the command and before it has reported it, we have a
 * child that we do not know. Only we can reap it, and pid 1 cannot end before that. So when no exec
 * is live, we reap every child that is left. That may include pid 1; its pidfd still reports its
 * end.
 */
static bool shim_stop_waits_for_init(const struct supervisor *sup)
{
    return sup->shut && !sup->gone && !execs_live(sup);
}

uint64_t shim_timer_at(const struct supervisor *sup)
{
    const struct shim *s = container_of(sup, const struct shim, sup);
    uint64_t at = MIN(proc_view_refresh_at(sup), kernel_memory_check_at(sup));

    if (s->confined)
        return confined_timer_at(s);
    return shim_stop_waits_for_init(sup) ? MIN(at, s->strays_at) : at;
}

void shim_timer(struct supervisor *sup, uint64_t now)
{
    struct shim *s = shim_of(sup);
    siginfo_t si;

    if (s->confined) {
        confined_timer(s, now);
        return;
    }
    if (now >= proc_view_refresh_at(sup))
        proc_view_refresh(sup, now);
    if (now >= kernel_memory_check_at(sup))
        kernel_memory_check(sup, now);
    if (!shim_stop_waits_for_init(sup) || now < s->strays_at)
        return;
    s->strays_at = now + STRAYS_EVERY;
    do
        si.si_pid = 0;
    while (waitid(P_ALL, 0, &si, WEXITED | WNOHANG | __WALL) == 0 && si.si_pid);
}

void shim_clean_up(struct supervisor *sup)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct shim *s = shim_of(sup);

    jobs_end(s);
    cgroup_group_done(&s->init_group);
    for (struct supervised_exec *x = sup->execs; x; x = x->next)
        cgroup_group_done(&shim_exec_of(x)->group);
    if (sup->for_good)
        return;
    if (cgroup_remove(&s->cgroup, CGROUP_WAIT_SEC * USEC_PER_SEC, &err) < 0)
        log_warn("sandbox %s: %s; the daemon removes it later", s->plan.sandbox_id, err.msg);
}

/*
 * Pid 1 cannot be reaped before all processes in its namespace, so we see the commands' deaths
 * first. Its socket, however, is closed before the kernel kills them.
 */
void stop_if_init_dies(struct shim *s)
{
    char byte;

    if (s->confined || s->sup.state == SUP_STOPPING ||
        recv(s->init_sock, &byte, 1, MSG_DONTWAIT) != 0)
        return;
    log_warn("sandbox %s: pid 1 died; all processes in the sandbox end", s->plan.sandbox_id);
    stop_begin(&s->sup, 0);
}

void stop_on_init(struct loop_source *src, uint32_t events _unused_)
{
    struct shim *s = container_of(src, struct shim, init);

    if (pidfd_reap(src->fd, false, NULL, NULL) == 0)
        return;
    source_close(&s->sup, src);
    s->sup.gone = true;
    s->sup.shut = true;
    stop_if_init_dies(s);
}

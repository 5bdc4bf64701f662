/*
 * Kernel memory that the memory limit does not contain. The kernel charges nearly everything that
 * a process makes it allocate to the process's cgroup: pages, files, pipes, unix sockets, timers,
 * names. Two things escape, and both grow with the number of sockets:
 *
 * - netlink (lib/os/netlink-memory.h).
 * - v1: TCP accepts one packet (64 KiB on loopback) for each socket, although the limit for the
 *   memory of sockets is reached. The counter shows these packets; the limit does not stop them.
 *
 * Nothing in the kernel bounds them, so the shim adds them up while processes run. No ordinary
 * program holds half of its memory limit in such queues: all commands of a sandbox that does are
 * killed, as by the OOM killer, and the kernel frees the memory.
 */
#include "lib/base/guard.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/os/cgroup.h"
#include "lib/os/netlink-memory.h"
#include "supervisor/shim/shim.h"

enum { SHARE_DIVISOR = 2 };

#define CHECK_INTERVAL (USEC_PER_SEC / 4)

static void kernel_memory_kill(struct shim *s, uint64_t held)
{
    char text[2][FORMAT_MAX];

    log_warn("sandbox %s: kernel memory in socket queues (%s) is over half of the memory limit "
             "(%s): killing all its commands",
             s->plan.sandbox_id, format_size(held, text[0]), format_size(s->plan.memory, text[1]));
    for (struct supervised_exec *x = s->sup.execs; x; x = x->next) {
        if (!exec_is_live(x))
            continue;
        shim_exec_of(x)->uncharged = held;
        exec_kill(x, END_OOM);
    }
    cgroup_kill_groups(&s->cgroup, EXEC_GROUP_PREFIX); /* also what ended commands left behind */
}

uint64_t kernel_memory_check_at(const struct supervisor *sup)
{
    return container_of(sup, const struct shim, sup)->memory_check_at;
}

void kernel_memory_watch(struct shim *s)
{
    if (s->memory_check_at == DEADLINE_NEVER && s->plan.memory &&
        !(s->sup.unenforced & LIMIT_MEMORY) && GUARD("kernel memory"))
        s->memory_check_at = time_mono() + CHECK_INTERVAL;
}

void kernel_memory_check(struct supervisor *sup, uint64_t now)
{
    struct shim *s = shim_of(sup);
    struct cgroup_usage u;
    uint64_t held;

    cgroup_usage(&s->cgroup, NULL, &u);
    held = u.sockets + netlink_memory(s->init_pid);
    /* Pid 1 alone needs no watching. The next exec starts it again. */
    s->memory_check_at = execs_live(sup) || u.pids > 1 ? now + CHECK_INTERVAL : DEADLINE_NEVER;
    if (held > s->plan.memory / SHARE_DIVISOR)
        kernel_memory_kill(s, held);
}

/*
 * v1 hybrid: the v1 controllers enforce the limits, at the sandbox's folder. Each group has its own
 * `memory` folder below it for counters: v1 counts an OOM kill only in the victim's own group,
 * which is what the end record of an exec needs.
 */
#include <errno.h>

#include "lib/os/cgroup-files.h"

enum { CPU_PERIOD_USEC = 100000, SOCKETS_DIVISOR = 4 };

/*
 * v1 does not charge the queues of TCP and UDP sockets to the memory limit. They have a counter of
 * their own, which the kernel keeps only for groups with a limit in exactly that group, but which
 * also holds for the groups above. So the sandbox and each of its groups get the same limit.
 */
int cgroup_v1_limit_sockets(int dirfd, uint64_t memory)
{
    return cgroup_write_u64(dirfd, "memory.kmem.tcp.limit_in_bytes", memory / SOCKETS_DIVISOR);
}

static bool cgroup_v1_limit_memory(struct cgroup *c, uint64_t bytes)
{
    int dir = c->dir[CGROUP_MEMORY];

    if (cgroup_write_u64(dir, "memory.limit_in_bytes", bytes) < 0)
        return false;
    /* The file is absent without swap accounting. */
    cgroup_write_u64(dir, "memory.memsw.limit_in_bytes", bytes);
    if (cgroup_v1_limit_sockets(dir, bytes) < 0)
        return false;
    c->memory = bytes;
    return true;
}

static int cgroup_v1_limit_group(const struct cgroup *c, const struct cgroup_group *g,
                                 struct err *err)
{
    int dir = g->dir[CGROUP_MEMORY];
    int r = !c->memory || dir < 0 ? 0 : cgroup_v1_limit_sockets(dir, c->memory);

    return r < 0 ? err_sys(err, -r, "limit the memory of sockets in cgroup '%s'", g->name) : 0;
}

static bool cgroup_v1_limit_cpu(struct cgroup *c, uint32_t milli)
{
    int dir = c->dir[CGROUP_CPU];
    uint64_t quota = (uint64_t)milli * CPU_PERIOD_USEC / 1000;

    return cgroup_write_u64(dir, "cpu.cfs_period_us", CPU_PERIOD_USEC) >= 0 &&
           cgroup_write_u64(dir, "cpu.cfs_quota_us", quota) >= 0;
}

static uint32_t cgroup_v1_limit(struct cgroup *c, const struct cgroup_limits *l)
{
    uint32_t missing = 0;

    if (l->memory && !cgroup_v1_limit_memory(c, l->memory))
        missing |= LIMIT_MEMORY;
    if (l->cpu_milli && !cgroup_v1_limit_cpu(c, l->cpu_milli))
        missing |= LIMIT_CPUS;
    if (l->pids && cgroup_write_u64(c->dir[CGROUP_PIDS], "pids.max", l->pids) < 0)
        missing |= LIMIT_PIDS;
    return missing;
}

static void cgroup_v1_usage(struct cgroup *c, const struct cgroup_group *g,
                            struct cgroup_usage *ret)
{
    int memory = g ? g->dir[CGROUP_MEMORY] : c->dir[CGROUP_MEMORY];
    int unified = g ? g->dir[CGROUP_UNIFIED] : c->dir[CGROUP_UNIFIED];

    if (!g) {
        ret->memory = cgroup_read_u64(memory, "memory.usage_in_bytes");
        ret->pids = cgroup_read_u64(c->dir[CGROUP_PIDS], "pids.current");
        ret->sockets = cgroup_read_u64(memory, "memory.kmem.tcp.usage_in_bytes");
    }
    ret->memory_peak = cgroup_read_u64(memory, "memory.max_usage_in_bytes");
    ret->oom_kills = cgroup_read_key(memory, "memory.oom_control", "oom_kill");
    ret->cpu_usec = cgroup_read_key(unified, "cpu.stat", "usage_usec");
}

/* Files on tmpfs also count as cache, but cannot be dropped. */
static uint64_t cgroup_v1_cache(struct cgroup *c)
{
    uint64_t cache = cgroup_read_key(c->dir[CGROUP_MEMORY], "memory.stat", "total_cache");
    uint64_t shmem = cgroup_read_key(c->dir[CGROUP_MEMORY], "memory.stat", "total_shmem");

    return cache > shmem ? cache - shmem : 0;
}

static int cgroup_v1_freeze(struct cgroup *c, bool on, struct err *err)
{
    int r;

    /* Prefers the v2 freezer: processes that it froze can be killed. */
    if (c->dir[CGROUP_UNIFIED] >= 0)
        r = cgroup_write(c->dir[CGROUP_UNIFIED], "cgroup.freeze", on ? "1" : "0");
    else
        r = cgroup_write(c->dir[CGROUP_FREEZER], "freezer.state", on ? "FROZEN" : "THAWED");
    if (r == -EBADF)
        return err_set(err, ERR_UNSUPPORTED, "no cgroup freezer on this machine");
    return r < 0 ? err_sys(err, -r, "%s the sandbox's cgroup", on ? "freeze" : "thaw") : 0;
}

const struct cgroup_ops cgroup_v1_ops = {
    .name = "v1",
    .limit = cgroup_v1_limit,
    .limit_group = cgroup_v1_limit_group,
    .usage = cgroup_v1_usage,
    .cache = cgroup_v1_cache,
    .freeze = cgroup_v1_freeze,
};

/*
 * v1 hybrid: limits from the v1 controllers at the sandbox's folder. A group's own memory folder
 * below it has the counters: v1 counts an OOM kill only in the victim's own group, which is just
 * what an exec's end record needs.
 */
#include <errno.h>

#include "lib/os/cgroup-files.h"

enum { CPU_PERIOD_USEC = 100000 };

static bool cgroup_v1_limit_memory(struct cgroup *c, uint64_t bytes)
{
    int dir = c->dir[CGROUP_MEMORY];

    if (cgroup_write_u64(dir, "memory.limit_in_bytes", bytes) < 0)
        return false;
    /* Absent without swap accounting; there is then no swap to speak of, or none to be had. */
    cgroup_write_u64(dir, "memory.memsw.limit_in_bytes", bytes);
    return true;
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
    }
    ret->memory_peak = cgroup_read_u64(memory, "memory.max_usage_in_bytes");
    ret->oom_kills = cgroup_read_key(memory, "memory.oom_control", "oom_kill");
    ret->cpu_usec = cgroup_read_key(unified, "cpu.stat", "usage_usec");
    ret->pids_denied = cgroup_pids_denied(c);
}

/* Files on tmpfs are in the cache too, but cannot be dropped. */
static uint64_t cgroup_v1_cache(struct cgroup *c)
{
    uint64_t cache = cgroup_read_key(c->dir[CGROUP_MEMORY], "memory.stat", "total_cache");
    uint64_t shmem = cgroup_read_key(c->dir[CGROUP_MEMORY], "memory.stat", "total_shmem");

    return cache > shmem ? cache - shmem : 0;
}

static int cgroup_v1_freeze(struct cgroup *c, bool on, struct err *err)
{
    int r;

    /* The v2 freezer is the better one: frozen processes can be killed. */
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
    .usage = cgroup_v1_usage,
    .cache = cgroup_v1_cache,
    .freeze = cgroup_v1_freeze,
};

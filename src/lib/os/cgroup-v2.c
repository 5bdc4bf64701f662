/*
 * v2: one tree. Controllers must be enabled level by level; cgroup.c does that when it makes the
 * folders. The files of a controller that could not be enabled are missing here.
 */
#include "lib/os/cgroup-files.h"

#include <stdio.h>

enum {
    CPU_PERIOD_USEC = 100000,
    PIDS_APART = 1, /* pid 1 is not in the sandbox's folder, but is one of its processes */
};

static uint32_t cgroup_v2_limit(struct cgroup *c, const struct cgroup_limits *l)
{
    int dir = c->dir[CGROUP_UNIFIED];
    uint32_t missing = 0;
    char text[64];

    if (l->memory && cgroup_write_u64(dir, "memory.max", l->memory) < 0)
        missing |= LIMIT_MEMORY;
    else if (l->memory)
        cgroup_write(dir, "memory.swap.max", "0"); /* absent without swap accounting */
    snprintf(text, sizeof(text), "%llu %d",
             (unsigned long long)l->cpu_milli * CPU_PERIOD_USEC / 1000, CPU_PERIOD_USEC);
    if (l->cpu_milli && cgroup_write(dir, "cpu.max", text) < 0)
        missing |= LIMIT_CPUS;
    if (l->pids && cgroup_write_u64(dir, "pids.max", l->pids - PIDS_APART) < 0)
        missing |= LIMIT_PIDS;
    return missing;
}

static void cgroup_v2_usage(struct cgroup *c, const struct cgroup_group *g,
                            struct cgroup_usage *ret)
{
    int dir = g ? g->dir[CGROUP_UNIFIED] : c->dir[CGROUP_UNIFIED];

    if (!g) {
        ret->memory = cgroup_read_u64(dir, "memory.current");
        ret->pids = cgroup_read_u64(dir, "pids.current") + PIDS_APART;
    }
    ret->memory_peak = cgroup_read_u64(dir, "memory.peak");
    ret->oom_kills = cgroup_read_key(dir, g ? "memory.events.local" : "memory.events", "oom_kill");
    ret->cpu_usec = cgroup_read_key(dir, "cpu.stat", "usage_usec");
}

/* Files on tmpfs also count as cache, but cannot be dropped. */
static uint64_t cgroup_v2_cache(struct cgroup *c)
{
    uint64_t file = cgroup_read_key(c->dir[CGROUP_UNIFIED], "memory.stat", "file");
    uint64_t shmem = cgroup_read_key(c->dir[CGROUP_UNIFIED], "memory.stat", "shmem");

    return file > shmem ? file - shmem : 0;
}

static int cgroup_v2_freeze(struct cgroup *c, bool on, struct err *err)
{
    int r = cgroup_write(c->dir[CGROUP_UNIFIED], "cgroup.freeze", on ? "1" : "0");

    return r < 0 ? err_sys(err, -r, "%s the sandbox's cgroup", on ? "freeze" : "thaw") : 0;
}

const struct cgroup_ops cgroup_v2_ops = {
    .name = "v2",
    .limit = cgroup_v2_limit,
    .usage = cgroup_v2_usage,
    .cache = cgroup_v2_cache,
    .freeze = cgroup_v2_freeze,
};

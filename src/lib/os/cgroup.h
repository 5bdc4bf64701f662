/*
 * The cgroups of one sandbox. Layout in every hierarchy used:
 *
 *     <mount>/<parent>/<root id>/<sandbox id>/          limits
 *     <mount>/<parent>/<root id>/<sandbox id>/init      pid 1
 *     <mount>/<parent>/<root id>/<sandbox id>/x-<exec>  one exec
 *
 * (v1 `memory`: pid 1 sits in the sandbox's own folder, as it needs no counters.)
 *
 * Three implementations behind struct cgroup_ops: v2; v1 hybrid (limits from the v1 controllers,
 * killing, freezing and CPU time from the v2 tree beside them, where there is one; groups only in
 * `memory` and v2); and a null object where nothing may be made, which enforces nothing and says
 * so.
 *
 * Entering costs time when done by writing pids to cgroup.procs (7-15 ms: the kernel waits for an
 * RCU grace period). So a process is born in its v2 group (CLONE_INTO_CGROUP) and, single-threaded,
 * writes "0" to the v1 `tasks` files itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/limits.h"

enum { CGROUP_NAME_MAX = 40 };

struct cgroup_limits {
    uint64_t memory;    /* bytes, swap included; 0: none, also below */
    uint32_t cpu_milli; /* thousandths of a CPU */
    uint32_t pids;
};

/* 0 where the kernel does not tell. */
struct cgroup_usage {
    uint64_t memory, pids; /* just now: of a whole sandbox only */
    uint64_t memory_peak;
    uint64_t oom_kills; /* processes of exactly this group that the OOM killer ended */
    uint64_t cpu_usec;
    uint64_t pids_denied; /* of the sandbox */
};

enum cgroup_tree {
    CGROUP_UNIFIED,
    CGROUP_MEMORY,
    CGROUP_CPU,
    CGROUP_PIDS,
    CGROUP_FREEZER,
    CGROUP_TREES
};

struct cgroup_ops;

struct cgroup {
    const struct cgroup_ops *ops;
    int root[CGROUP_TREES];  /* the <root id> folder, or -1 where that tree is not used */
    int dir[CGROUP_TREES];   /* the sandbox's folder */
    int tasks[CGROUP_TREES]; /* its `tasks`, for trees without groups */
    char id[CGROUP_NAME_MAX];
};

/* A group of processes below the sandbox. */
struct cgroup_group {
    char name[CGROUP_NAME_MAX];
    int dir[CGROUP_TREES];
    int tasks[CGROUP_TREES];
};

struct cgroup_ops {
    const char *name; /* "v2", "v1", "none" */
    /* Returns the bits (enum limit_bit) of the limits that cannot be enforced here. */
    uint32_t (*limit)(struct cgroup *c, const struct cgroup_limits *limits);
    /* Of a group, or of the whole sandbox with g NULL. */
    void (*usage)(struct cgroup *c, const struct cgroup_group *g, struct cgroup_usage *ret);
    /* Bytes of the sandbox's memory that are only cached files; NULL: not told. */
    uint64_t (*cache)(struct cgroup *c);
    int (*freeze)(struct cgroup *c, bool on, struct err *err);
};

/* Looks in advance where the trees are mounted: the next cgroup_open() relies on it. For a process
 * of one thread that will be in a hurry. */
int cgroup_learn(struct err *err);

/* Makes the sandbox's folders. Takes over what a dead run has left. */
int cgroup_open(struct cgroup *c, const char *parent, const char *root_id, const char *sandbox_id,
                struct err *err);
void cgroup_close(struct cgroup *c); /* the folders stay */

static inline uint32_t cgroup_limit(struct cgroup *c, const struct cgroup_limits *limits)
{
    return c->ops->limit(c, limits);
}

static inline void cgroup_usage(struct cgroup *c, const struct cgroup_group *g,
                                struct cgroup_usage *ret)
{
    *ret = (struct cgroup_usage){0};
    c->ops->usage(c, g, ret);
}

/* That figure alone. */
uint64_t cgroup_pids_denied(const struct cgroup *c);

static inline uint64_t cgroup_cache(struct cgroup *c)
{
    return c->ops->cache ? c->ops->cache(c) : 0;
}

/* The kernel freezes a process when that next comes by: waits until all are (not) frozen. Only
 * where the v2 freezer does it; of a v1 freezer the request is all there is. */
int cgroup_await_frozen(struct cgroup *c, bool on, struct err *err);
static inline int cgroup_freeze(struct cgroup *c, bool on, struct err *err)
{
    return c->ops->freeze(c, on, err);
}

#define CGROUP_GROUP_INIT                                                                          \
    {                                                                                              \
        .dir = {-1, -1, -1, -1, -1}, .tasks = {-1, -1, -1, -1, -1},                                \
    }
/* `counted`: with counters of its own, also on v1. */
int cgroup_group_open(struct cgroup *c, const char *name, bool counted, struct cgroup_group *ret,
                      struct err *err);
void cgroup_group_done(struct cgroup_group *g); /* the folders stay */
/* For clone3; -1 without a v2 tree. */
int cgroup_group_clone_fd(const struct cgroup_group *g);
/* In the single-threaded child: joins the v1 groups. 0 or -errno. */
int cgroup_group_enter(const struct cgroup *c, const struct cgroup_group *g);
/* SIGKILL to all of it; false when there is no way to reach them all (null object). */
bool cgroup_group_kill(struct cgroup *c, const struct cgroup_group *g);
bool cgroup_group_populated(const struct cgroup_group *g);
/* Removes a group's folders by name; false while processes are left in it. */
bool cgroup_group_remove(struct cgroup *c, const char *name);

/* Removes all groups and the sandbox's folders; waits up to `wait_usec` for dying processes. */
int cgroup_remove(struct cgroup *c, uint64_t wait_usec, struct err *err);

/*
 * For the daemon, after a shim has gone: kills what is left in the sandbox's cgroups and removes
 * them; fine when there are none.
 */
int cgroup_sweep(const char *parent, const char *root_id, const char *sandbox_id, struct err *err);
/* It has folders, and no process is in them any more. False where the kernel does not tell. */
bool cgroup_is_rest(const char *parent, const char *root_id, const char *sandbox_id);
/* Sandbox ids that have a folder in any tree; *ret is a strv (NULL: none). */
int cgroup_list(const char *parent, const char *root_id, char ***ret, struct err *err);
/* Removes the <root id> folders when no sandbox is left in them, and <parent> when it is empty. */
void cgroup_remove_root(const char *parent, const char *root_id);
/* What limits could be enforced on this machine, and "v2", "v1" or "none"; makes nothing. */
uint32_t cgroup_probe(const char **ret_name);

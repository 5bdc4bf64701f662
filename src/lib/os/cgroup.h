/*
 * The cgroups of one sandbox. Layout in every hierarchy used:
 *
 *     <mount>/<parent>/<root id>/<sandbox id>/          limits
 *     <mount>/<parent>/<root id>/<sandbox id>/x-<exec>  one exec
 *     <mount>/<parent>/<root id>.init/<sandbox id>      v2: pid 1
 *
 * Pid 1 makes the mounts. The kernel charges memory to it that outlives the sandbox, such as blocks
 * of folders, and a cgroup with a memory controller cannot go before its last page. So on v1 pid 1
 * joins the sandbox's folder late. On v2 joining is slow (below), so pid 1 starts in a folder that
 * has no controllers: the memory is charged to the folder above, which stays.
 *
 * struct cgroup_ops has three implementations:
 * - v2
 * - v1 hybrid: limits from the v1 controllers; killing, freezing and CPU time from the v2 tree
 *   beside them, if it is mounted, where pid 1 has a group `init`; groups only in `memory` and v2
 * - a null object for machines where cgroups cannot be created: it enforces nothing
 *
 * Writing a pid to cgroup.procs takes 7-15 ms, because the kernel waits for an RCU grace period. So
 * a process is created in its v2 group (CLONE_INTO_CGROUP) and, while single-threaded, writes "0"
 * to the v1 `tasks` files itself.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/limits.h"

enum { CGROUP_NAME_MAX = 40 };

struct cgroup_limits {
    uint64_t memory;    /* bytes, with swap; 0: no limit, also below */
    uint32_t cpu_milli; /* thousandths of a CPU */
    uint32_t pids;
};

/* A value that the kernel does not report is 0. */
struct cgroup_usage {
    uint64_t memory, pids; /* current values, for a whole sandbox only */
    uint64_t sockets;      /* memory of IP sockets, where `memory` does not contain it; likewise */
    uint64_t memory_peak;
    uint64_t oom_kills; /* processes of exactly this group that the OOM killer ended */
    uint64_t cpu_usec;
};

enum cgroup_tree {
    CGROUP_UNIFIED,
    CGROUP_MEMORY,
    CGROUP_CPU,
    CGROUP_PIDS,
    CGROUP_FREEZER,
    CGROUP_INIT, /* the folders of pid 1 in the v2 tree */
    CGROUP_TREES
};

struct cgroup_ops;

struct cgroup {
    const struct cgroup_ops *ops;
    int root[CGROUP_TREES];  /* the <root id> folder, or -1 where that tree is not used */
    int dir[CGROUP_TREES];   /* the sandbox's folder */
    int tasks[CGROUP_TREES]; /* the `tasks` file in `dir`, for trees without groups */
    uint64_t memory;         /* v1: the memory limit, bytes; 0: none */
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
    /* A new group: sets limits that do not hold for it by inheritance. NULL: none. */
    int (*limit_group)(const struct cgroup *c, const struct cgroup_group *g, struct err *err);
    /* g NULL: the whole sandbox. */
    void (*usage)(struct cgroup *c, const struct cgroup_group *g, struct cgroup_usage *ret);
    /* Bytes of the sandbox's memory that are cached files; NULL: not known. */
    uint64_t (*cache)(struct cgroup *c);
    int (*freeze)(struct cgroup *c, bool on, struct err *err);
};

/* Finds the mounts of the trees in advance, so that the next cgroup_open() is faster. For
 * single-threaded processes. */
int cgroup_learn(struct err *err);

/* Makes the sandbox's folders, or takes over those of an earlier run that died. `parent` is that of
 * cgroup-place.h; NULL: there is no place for cgroups. */
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

/* How often the sandbox's limit of processes has refused a new one. */
uint64_t cgroup_pids_denied(const struct cgroup *c);

/*
 * The same for one group, from two looks. On v2, Linux before 6.11 counts in the group of the
 * process that forked. Newer kernels, and v1, count at the limit, so that the refusals belong to
 * this group if it was the only one (`alone`), or if its peak and what the others held would have
 * been too many: the peak includes a process that was refused further up.
 */
struct cgroup_pids {
    uint64_t denied;        /* at the sandbox's limit */
    uint64_t denied_inside; /* in the group */
    uint64_t others;        /* processes of other groups */
};

void cgroup_pids_look(const struct cgroup *c, const struct cgroup_group *g,
                      struct cgroup_pids *ret);
uint64_t cgroup_pids_denied_since(const struct cgroup *c, const struct cgroup_group *g,
                                  const struct cgroup_pids *before, bool alone);

static inline uint64_t cgroup_cache(struct cgroup *c)
{
    return c->ops->cache ? c->ops->cache(c) : 0;
}

/* Waits until all processes are (not) frozen: the kernel freezes each one when it next enters the
 * kernel. Only the v2 freezer reports this; with a v1 freezer it returns at once. */
int cgroup_await_frozen(struct cgroup *c, bool on, struct err *err);
static inline int cgroup_freeze(struct cgroup *c, bool on, struct err *err)
{
    return c->ops->freeze(c, on, err);
}

#define CGROUP_GROUP_INIT                                                                          \
    {                                                                                              \
        .dir = {-1, -1, -1, -1, -1, -1}, .tasks = {-1, -1, -1, -1, -1, -1},                        \
    }
/* `counted`: the group has its own counters, also on v1. */
int cgroup_group_open(struct cgroup *c, const char *name, bool counted, struct cgroup_group *ret,
                      struct err *err);
/* The group in which pid 1 is cloned. */
int cgroup_group_open_init(struct cgroup *c, struct cgroup_group *ret, struct err *err);
void cgroup_group_done(struct cgroup_group *g); /* the folders stay */
/* The descriptor for clone3(); -1 without a v2 tree. */
int cgroup_group_clone_fd(const struct cgroup_group *g);
/* In the single-threaded child: joins the v1 groups. 0 or -errno. */
int cgroup_group_enter(const struct cgroup *c, const struct cgroup_group *g);
/* Sends SIGKILL to all processes of the group; false: not possible (null object). */
bool cgroup_group_kill(struct cgroup *c, const struct cgroup_group *g);
/* The same for all groups of the sandbox whose name has this prefix. */
void cgroup_kill_groups(struct cgroup *c, const char *prefix);
bool cgroup_group_populated(const struct cgroup_group *g);
/* Removes a group's folders by name; false while processes are left in it. */
bool cgroup_group_remove(struct cgroup *c, const char *name);

/* Removes all groups and the sandbox's folders; waits up to `wait_usec` for dying processes. */
int cgroup_remove(struct cgroup *c, uint64_t wait_usec, struct err *err);

/*
 * For the daemon, after a shim has ended: kills the processes that are left in the sandbox's
 * cgroups and removes the cgroups, if any.
 */
int cgroup_sweep(const char *parent, const char *root_id, const char *sandbox_id, struct err *err);
/* Whether the sandbox has cgroup folders without processes. False when it cannot be determined. */
bool cgroup_is_rest(const char *parent, const char *root_id, const char *sandbox_id);
/* Sandbox ids that have a folder in any tree; *ret is a strv (NULL: none). */
int cgroup_list(const char *parent, const char *root_id, char ***ret, struct err *err);
/* Whether <parent> is there in any tree. */
bool cgroup_parent_exists(const char *parent);
/* Removes the <root id> folders when no sandbox is left in them, and <parent> when it is empty. */
void cgroup_remove_root(const char *parent, const char *root_id);
/*
 * For a container of an engine: limits the memory of IP sockets in the cgroup of its process, as
 * cgroup_limit() does for a sandbox with this memory limit. Does nothing where the memory limit
 * contains it (v2).
 */
int cgroup_limit_sockets(int pid, uint64_t memory, struct err *err);
/* The memory of IP sockets in the cgroup of that process, where its memory limit does not contain
 * it; else 0. */
uint64_t cgroup_sockets_of(int pid);
/* Where only v2 is mounted: its mount (owned). Else NULL, and the limits without a writable v1
 * hierarchy (bits of enum limit_bit). */
char *cgroup_unified_mount(uint32_t *ret_v1_missing);

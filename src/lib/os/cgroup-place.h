/*
 * Where the cgroups of sandboxes are made, decided once by the daemon.
 *
 * On v1 that is the folder `ripcord` of each hierarchy. On v2 the tree belongs to systemd or to the
 * runtime of a container, which hand out subtrees, and the kernel refuses processes in a folder
 * that hands controllers down. The first that applies:
 *
 * - our own cgroup, if it was handed out to us: systemd marks it (Delegate=yes); for an ordinary
 *   user it is one that belongs to this user. Its processes move to the leaf `supervisor`, where
 *   systemd 254 and later start us in the first place (DelegateSubgroup=).
 * - the folder `ripcord` at the top, if the top is ours: on a machine, and in a container with a
 *   cgroup namespace, whose processes move to the leaf `supervisor`.
 *
 * Older versions of systemd cannot start a unit again while sandboxes live in its cgroup: they put
 * the new process where the kernel refuses it. There the cgroups of our unit are in the folder
 * `ripcord-sandboxes` beside it, which gets the unit's limits (docs/decisions/035-systemd.md).
 *
 * Nothing is written before everything has been checked. Otherwise +cpu and +pids could succeed
 * where +memory fails, and would make the subtree "threaded" for good.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

struct cgroup_place {
    const char *version; /* "v2", "v1", "none" */
    char *parent;        /* owned: a folder below the mount of each tree; NULL with "none" */
    uint32_t missing;    /* limits that cannot be enforced there: bits of enum limit_bit */
    char *why;           /* owned: why some are missing; NULL: none is missing */
    char *hint;          /* owned: what to do; or NULL */
};

#define CGROUP_PLACE_INIT                                                                          \
    {                                                                                              \
        .version = "none"                                                                          \
    }

/* Makes and prepares the place for this process and its children. */
void cgroup_place_take(struct cgroup_place *ret);
/* The same, but only looks. */
void cgroup_place_find(struct cgroup_place *ret);
void cgroup_place_done(struct cgroup_place *p);

/* For tests: a folder with the files of a v2 tree, and the cgroup of this process in it
 * ("/a/b"). */
void cgroup_place_find_at(const char *mount, const char *own, uid_t uid, bool take,
                          struct cgroup_place *ret);

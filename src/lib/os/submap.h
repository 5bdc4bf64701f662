/*
 * The id map of an ordinary user who owns a range of subordinate ids (subuid(5)): written by the
 * setuid programs newuidmap and newgidmap, as the kernel lets nobody else map ids of others.
 *
 *     inside      outside
 *     0..999      the range's first 1,000
 *     1000        the user
 *     1001..65535 the rest of the range
 *
 * So the user's own files, and mounts of them, are the sandbox's ordinary user's, and most files of
 * a sandbox stay the user's; only those of other users inside belong to the range.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

enum { SUBMAP_SELF = 1000, SUBMAP_COUNT = 65535 /* ids of the range that are used */ };

#define SUBMAP_UID_PROGRAM "/usr/bin/newuidmap"
#define SUBMAP_GID_PROGRAM "/usr/bin/newgidmap"

struct submap {
    uint32_t uid, gid; /* where the ranges begin; uid 0: there are none */
};

/* Maps the ids of a child that waits in a fresh user namespace. Their last words go to stderr. */
int submap_write(pid_t pid, const struct submap *m, struct err *err);

/* Such a child runs fn(arg) and ends with its value, 0 to 254; that, or -code. */
int submap_run(const struct submap *m, int (*fn)(void *arg), void *arg, struct err *err);

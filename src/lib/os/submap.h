/*
 * The id map of an ordinary user with a range of subordinate ids (subuid(5)). The setuid programs
 * newuidmap and newgidmap write it: the kernel does not let an ordinary user map other ids.
 *
 *     inside      outside
 *     0..999      the range's first 1,000
 *     1000        the user
 *     1001..65535 the rest of the range
 *
 * So the user's own files belong to the ordinary user (1000) of the sandbox, also when they are
 * mounted. Files of that user in the sandbox belong to the user outside; files of all other users
 * belong to the range.
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
    uint32_t uid, gid; /* where the ranges begin; uid 0: no range */
};

/* Maps the ids of a child that waits in a new user namespace. The programs write errors to
 * stderr. */
int submap_write(pid_t pid, const struct submap *m, struct err *err);

/* Runs fn(arg) in such a child. Returns its value (0 to 254), or -code. */
int submap_run(const struct submap *m, int (*fn)(void *arg), void *arg, struct err *err);

/*
 * Why the start of a sandbox was refused. The kernel says "Operation not permitted" for a seccomp
 * profile, an AppArmor profile, a sysctl and a covered /proc alike. These functions find out which
 * it is, say so in front of the error, and add one instruction that helps here.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/os/surroundings.h"
#include "proto/plan.h"

/* What was refused. */
enum start_step {
    START_STEP_NAMESPACES,
    START_STEP_PROC,  /* a new /proc */
    START_STEP_UPPER, /* an overlay with its upper layer in the state folder */
    START_STEP_IDMAP, /* an id-mapped mount of `path` */
    START_STEP_OTHER,
};

/* *err is filled; nothing happens if it has a hint already, or if its errno says nothing. path: for
 * IDMAP, else NULL. */
void start_cause(const struct plan *plan, enum start_step step, const char *path, struct err *err);
/* The same with given surroundings, for tests. */
void start_cause_in(const struct surroundings *s, const struct plan *plan, enum start_step step,
                    const char *path, struct err *err);

/*
 * Becoming a user of the sandbox, for a process that has entered its user namespace: ids, groups,
 * capabilities, no-new-privileges, in the only order that works. From then on it can do what that
 * user can do inside, and nothing else.
 */
#pragma once

#include "lib/base/err.h"
#include "proto/plan.h"
#include "supervisor/shim/user.h"

/* The part that can be done before the user is known: gives up what none of them has. */
int identity_bound(struct err *err);

int identity_become(const struct plan *plan, const struct user *u, struct err *err);

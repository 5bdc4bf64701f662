/*
 * Becoming a user of the sandbox, for a process that has entered its user namespace: ids, groups,
 * capabilities, no-new-privileges, in the only order that works. Afterwards the process has the
 * rights of that user inside and no others.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/os/user.h"
#include "proto/plan.h"

/* The part that is possible before the user is known: drops the capabilities that no user has. */
int identity_bound(struct err *err);

int identity_become(const struct plan *plan, const struct user *u, struct err *err);

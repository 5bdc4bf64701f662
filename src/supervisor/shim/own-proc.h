/*
 * A /proc for the sandbox that is mounted from outside. In a user namespace the kernel mounts a new
 * /proc only where one is wholly visible already. In a container parts of /proc are covered. A
 * process with rights over the container's own mounts is not bound by that, but it must be in the
 * sandbox's pid namespace, because a /proc shows that of the process that makes it. So a helper of
 * the shim joins the pid namespace and nothing else.
 */
#pragma once

#include "lib/base/err.h"

struct shim;

/* Whether the container's /proc is covered, and we have the right to mount one. */
bool own_proc_is_needed(const struct shim *s);
/* A detached mount; pid 1 attaches it and hides in it what it hides in any /proc. */
int own_proc_mount(const struct shim *s, int *ret, struct err *err);

/*
 * Acting as the owner of the sandbox's namespaces. With a range of ids that is the first id of the
 * range, which no user has: to the kernel it has all rights over what runs inside.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

struct shim;

/* Whether the sandbox's namespaces belong to an id of its own. */
bool owner_is_other(const struct shim *s);

/*
 * While `on`, the shim has the effective id of the owner, and its own capabilities. Files are still
 * made and opened as root. Does nothing without an owner of its own. 0 or -errno; if it cannot turn
 * off again, the shim must give the sandbox up.
 */
int owner_act(const struct shim *s, bool on);

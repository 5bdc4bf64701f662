/*
 * The free-space floor: by default a sandbox may write as much as the disk holds, so below a floor
 * of free space no new work is taken. What runs goes on, and stop, rm and logs always work.
 */
#pragma once

#include "base/err.h"

struct manager;

/* ERR_LIMIT, with the figures, when less than the floor is free where sandboxes are kept. */
int floor_check(const struct manager *m, struct err *err);

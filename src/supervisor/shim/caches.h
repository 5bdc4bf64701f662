/*
 * Package caches inside a sandbox: /cache, and what single tools have instead of a folder in it.
 * proto/plan.h says what lies where.
 */
#pragma once

#include "lib/base/err.h"
#include "proto/plan.h"
#include "supervisor/shim/layers.h"

/* Makes what is missing below the data folder `dir`, and empties what is to be new at each start.
 * By the shim. */
int caches_prepare(const struct plan *plan, int dir, struct err *err);

/* Mounts what lies over /cache, or elsewhere, in the root that is being built. By pid 1, which
 * stands in the scaffold. */
int caches_mount(const struct plan *plan, const struct layers *layers, int scaffold, int root_fd,
                 struct err *err);

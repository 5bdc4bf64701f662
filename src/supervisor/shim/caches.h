/*
 * Package caches inside a sandbox: /cache, and mounts for single tools that replace a folder in it.
 * proto/plan.h describes the kinds of caches and their paths.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "proto/plan.h"
#include "supervisor/shim/layers.h"

/* Called by the shim: creates missing folders below the data folder `dir`, and empties the caches
 * that start empty each time. */
int caches_prepare(const struct plan *plan, int dir, struct err *err);

/* Called by pid 1, with the scaffold as working folder: mounts the caches into the new root. plain:
 * without overlays (setup-plain.h), so a cache of any mode is the sandbox's own. */
int caches_mount(const struct plan *plan, const struct layers *layers, bool plain, int scaffold,
                 int root_fd, struct err *err);

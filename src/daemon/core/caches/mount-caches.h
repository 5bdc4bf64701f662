/*
 * Cache mounts of image builds (`RUN --mount=type=cache`) on the engine that stores images: list,
 * remove, and trim to the budget that all of them share. After every build they are trimmed in the
 * background. All on the loop.
 */
#pragma once

#include "daemon/engine/engine.h"
#include "lib/base/err.h"

struct manager;

/* `done` and the failures of these three are those of manager_image(). The JSON is described in
 * image/archive/mount-cache.h. */

/* Returns 0, without calling done, when no engine in use has a builder of ours; else 1. */
int manager_mounts(struct manager *m, engine_json_fn done, void *arg, struct err *err);
int manager_mount_remove(struct manager *m, char *id, engine_json_fn done, void *arg,
                         struct err *err);
/* keep: bytes; NULL: the configured budget. unused: seconds; removes the mounts that were not used
 * for that long, 0: all. */
int manager_mounts_trim(struct manager *m, const uint64_t *keep, uint64_t unused,
                        engine_json_fn done, void *arg, struct err *err);

/* To be called when a build has ended: trims in the background. */
void mounts_keep_budget(struct manager *m);

/*
 * Cache mounts of builds, on the engine that keeps images: what there is, removing one, and the
 * budget that all of them share. It is kept after every build, in the background.
 */
#pragma once

#include "daemon/engine/engine.h"
#include "lib/base/err.h"

struct manager;

/* `done` gets the JSON of image/archive/mount-cache.h. A call that fails does not call it. */

/* 0: no engine that is in use has a builder of ours, and done is not called. */
int manager_mounts(struct manager *m, engine_json_fn done, void *arg, struct err *err);
int manager_mount_remove(struct manager *m, char *id, engine_json_fn done, void *arg,
                         struct err *err);
/* keep NULL: the budget. unused: seconds; 0: however long. */
int manager_mounts_trim(struct manager *m, const uint64_t *keep, uint64_t unused,
                        engine_json_fn done, void *arg, struct err *err);

/* A build has ended. */
void mounts_keep_budget(struct manager *m);

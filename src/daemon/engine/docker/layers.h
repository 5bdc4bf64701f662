/*
 * Layered caches on a container engine. The shared base of a tool is a volume that is filled once
 * and never changed. The file <state>/docker/bases/<tool> names the present base; a rename replaces
 * it. A sandbox has two volumes for each tool. One holds the upper layer and is not mounted itself.
 * The other has overlay mount options: the engine mounts base and upper layer together when the
 * container starts. Volumes are filled through a container that is never started.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

struct sandbox_request;
struct cache_tool;
struct docker_engine;
struct engine;
struct engine_caches;

#define LABEL_BASE "ripcord.base"     /* on a base: its tool */
#define LABEL_HELPER "ripcord.helper" /* on a container that only fills volumes: the root's id */

/* Creates the tool's volumes of the sandbox if they do not exist. 1: *ret is the name of the
 * overlay volume, the caller's to free. 0: the tool has no base and needs none. */
int layer_ensure(struct docker_engine *d, const struct sandbox_request *req,
                 const struct cache_tool *t, const struct deadline *by, char **ret,
                 struct err *err);
/* Empties the upper layers of mode `readonly`. Call it before a sandbox starts. */
int layers_renew(struct docker_engine *d, const struct sandbox_request *req,
                 const struct deadline *by, struct err *err);
/* Removes the sandbox's overlay volumes that no container uses: the engine refuses the others. */
void layers_sweep(struct docker_engine *d, const char *id, const struct deadline *by);
/* Removes the filling containers that a killed daemon left. Best effort. */
void layers_tidy(struct docker_engine *d, const struct deadline *by);

/* Operations of the engine (engine_ops). */
int docker_cache_publish(struct engine *e, const char *tool, int tar_fd, const struct deadline *by,
                         struct err *err);
int docker_cache_list(struct engine *e, const struct deadline *by, struct engine_caches *ret,
                      struct err *err);
int docker_cache_drop(struct engine *e, const char *tool, const struct deadline *by,
                      struct err *err);

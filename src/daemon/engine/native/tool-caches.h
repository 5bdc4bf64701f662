/*
 * Package caches of the native engine: the caches of a start's plan, by the modes of the spec, and
 * the caches on the disk. <state>/caches/base belongs to cache-base.h;
 * <state>/caches/shared/<tool>[.<group>] are the stores of mode `shared`; a sandbox's own layers
 * are in its folder (proto/plan.h).
 */
#pragma once

#include "lib/base/time.h"
#include "proto/plan.h"

struct engine;
struct engine_caches;
struct native_engine;
struct sandbox_request;

int tool_caches_open(struct native_engine *n, struct err *err);

/*
 * Fills the plan's caches and adds their variables to *env. `run` is the folder of the run. A cache
 * that cannot be made becomes a line in *warnings, or an error where the configuration requires
 * caches.
 */
int tool_caches_plan(struct native_engine *n, const struct sandbox_request *req, int run,
                     struct plan *p, char ***env, char ***warnings, struct err *err);

/* engine_ops.cache_publish, .cache_list and .cache_drop. */
int native_cache_publish(struct engine *e, const char *tool, int tar_fd, const struct deadline *by,
                         struct err *err);
int native_cache_list(struct engine *e, const struct deadline *by, struct engine_caches *ret,
                      struct err *err);
int native_cache_drop(struct engine *e, const char *tool, const struct deadline *by,
                      struct err *err);

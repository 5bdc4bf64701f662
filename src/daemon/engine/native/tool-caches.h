/*
 * Package caches on the native engine: what a spec's modes mean for the plan of a start, and what
 * lies on the disk. <state>/caches/base is cache-base.h's; <state>/caches/shared/<tool>[.<group>]
 * are the stores of mode `shared`; a sandbox's own layers lie in its folder (proto/plan.h).
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
 * Fills the plan's caches and adds the variables of those that are there to *env. `run` is the
 * folder of the run. A cache that cannot be made is a line in *warnings, or an error where the
 * configuration requires it.
 */
int tool_caches_plan(struct native_engine *n, const struct sandbox_request *req, int run,
                     struct plan *p, char ***env, char ***warnings, struct err *err);

/* The engine's calls of the same names. */
int native_cache_publish(struct engine *e, const char *tool, int tar_fd, const struct deadline *by,
                         struct err *err);
int native_cache_list(struct engine *e, const struct deadline *by, struct engine_caches *ret,
                      struct err *err);
int native_cache_drop(struct engine *e, const char *tool, const struct deadline *by,
                      struct err *err);

/*
 * Layered caches on a container engine. The shared base of a tool is a volume that is filled once
 * and never changed; which one is the present is noted in a file of ours,
 * <state>/docker/bases/<tool>, replaced in one rename. A sandbox has two volumes for it: one that
 * holds the upper layer (and is mounted nowhere), and one whose mount is an overlay of both, which
 * the engine makes when the container starts. Volumes are filled through a container that is never
 * started.
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

#define LABEL_BASE "ripcord.base"     /* of a base: its tool */
#define LABEL_HELPER "ripcord.helper" /* of a container that only fills volumes: the root's id */

/* 1 and the name of the volume for that tool of the sandbox, made when it is not there; 0: the tool
 * has no base, and needs none. */
int layer_ensure(struct docker_engine *d, const struct sandbox_request *req,
                 const struct cache_tool *t, const struct deadline *by, char **ret,
                 struct err *err);
/* Empties the upper layers of mode `readonly`: for a sandbox that is about to start. */
int layers_renew(struct docker_engine *d, const struct sandbox_request *req,
                 const struct deadline *by, struct err *err);
/* Removes containers that a killed daemon left half-way. Best effort. */
void layers_tidy(struct docker_engine *d, const struct deadline *by);

/* The engine's calls of the same names. */
int docker_cache_publish(struct engine *e, const char *tool, int tar_fd, const struct deadline *by,
                         struct err *err);
int docker_cache_list(struct engine *e, const struct deadline *by, struct engine_caches *ret,
                      struct err *err);
int docker_cache_drop(struct engine *e, const char *tool, const struct deadline *by,
                      struct err *err);

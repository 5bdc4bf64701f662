/*
 * Volumes that layers.c is made of: making, filling, listing. Every answer of the engine is looked
 * at; a volume of that name that is not what was wanted is an error, or made anew when it is ours.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "dockerapi/docker.h"
#include "lib/base/err.h"
#include "lib/base/time.h"

struct docker_engine;
struct engine_caches;

struct volume_wish {
    const char *name;
    const char *id;      /* of the sandbox that it belongs to; NULL: a base */
    const char *base;    /* of a base: its tool */
    const char *overlay; /* mount options of an overlay; NULL: a plain volume */
};

/* ret_path: where the engine has it; may be NULL. */
int volume_make(struct docker_engine *d, const struct volume_wish *wish, const struct deadline *by,
                char **ret_path, struct err *err);
bool volume_exists(struct docker_engine *d, const char *name, const char *id,
                   const struct deadline *by);
int volume_remove(struct docker_engine *d, const char *name, const struct deadline *by,
                  struct err *err);
/* Unpacks an archive in it, through a container that is never started. */
int volume_fill(struct docker_engine *d, const char *name, const struct docker_source *tar,
                const struct deadline *by, struct err *err);
/* Bytes below a path of the engine's, when that is ours to read; else UINT64_MAX. */
uint64_t volume_usage(struct docker_engine *d, const char *path, const struct deadline *by);

/* Bases of a tool that are neither `present` nor below a sandbox's layer go. Best effort. */
void bases_sweep(struct docker_engine *d, const char *tool, const char *present,
                 const struct deadline *by);
/* Volumes of mode `shared`, of a tool or ("") of all. */
int shared_remove(struct docker_engine *d, const char *tool, const struct deadline *by,
                  struct err *err);
/* Adds the shared and the sandboxes' own. */
int volumes_list(struct docker_engine *d, const struct deadline *by, struct engine_caches *ret,
                 struct err *err);
void helpers_remove(struct docker_engine *d, const struct deadline *by);

/*
 * Creates, fills and lists the volumes of layers.c. An existing volume is checked: if it is not
 * ours, that is an error; if it is ours with other options, it is created again.
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
    const char *id;      /* the sandbox that owns it; NULL: a base */
    const char *base;    /* the tool of a base; NULL: not a base */
    const char *overlay; /* mount options of an overlay; NULL: a plain volume */
};

/* ret_path: the volume's folder on the engine's machine; may be NULL. */
int volume_make(struct docker_engine *d, const struct volume_wish *wish, const struct deadline *by,
                char **ret_path, struct err *err);
bool volume_exists(struct docker_engine *d, const char *name, const char *id,
                   const struct deadline *by);
int volume_remove(struct docker_engine *d, const char *name, const struct deadline *by,
                  struct err *err);
/* Unpacks an archive into the volume, through a container that is never started. */
int volume_fill(struct docker_engine *d, const char *name, const struct docker_source *tar,
                const struct deadline *by, struct err *err);
/* Disk usage of a folder of the engine. UINT64_MAX: the daemon cannot read it. */
uint64_t volume_usage(struct docker_engine *d, const char *path, const struct deadline *by);

/* Removes bases of a tool, except `present` and those that a sandbox still uses. Best effort. */
void bases_sweep(struct docker_engine *d, const char *tool, const char *present,
                 const struct deadline *by);
/* Removes the volumes of mode `shared` of one tool, or ("") of all tools. */
int shared_remove(struct docker_engine *d, const char *tool, const struct deadline *by,
                  struct err *err);
/* Adds the shared caches and those of sandboxes to *ret. */
int volumes_list(struct docker_engine *d, const struct deadline *by, struct engine_caches *ret,
                 struct err *err);
/* Creates a container of the image that is never started, with the volume mounted unless that is
 * NULL. *ret: its id, the caller's to free. */
int helper_make(struct docker_engine *d, const char *image, const char *volume,
                const struct deadline *by, char **ret, struct err *err);
/* Removes helpers that a killed daemon left. Best effort. */
void helpers_remove(struct docker_engine *d, const struct deadline *by);

/*
 * Keeping the old container of a sandbox while it is re-created, and returning to it
 * (engine_ops.settle). Blocking, on workers.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/time.h"

struct docker_engine;
struct engine;
struct engine_sandbox;
struct sandbox_request;

/* Whether an item of the engine's list of containers is kept, not the sandbox's present one. */
bool container_is_kept(const json_t *item);
/* Whether the sandbox may have a kept container; does not ask the engine. */
bool docker_is_kept(const struct docker_engine *d, const char *id);

/* Keeps the sandbox's stopped container under another name. */
int docker_keep(struct docker_engine *d, const struct sandbox_request *req, const char *container,
                const struct deadline *by, struct err *err);
/* Removes the kept container; fine when there is none. */
int docker_drop_kept(struct docker_engine *d, const char *id, const struct deadline *by,
                     struct err *err);
int docker_settle(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct engine_sandbox *ret, struct err *err);

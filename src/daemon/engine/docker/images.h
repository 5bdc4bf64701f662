/*
 * Showing and pulling images of the engine, for commands that need one. The engine manages its
 * images itself, so the other operations are left to its own commands.
 */
#pragma once

#include "daemon/engine/engine-images.h"
#include "daemon/engine/engine.h"
#include "lib/base/time.h"

/* engine_ops.image */
int docker_image(struct engine *e, const struct image_op *req, const struct deadline *by,
                 char **ret, struct err *err);

/*
 * Images that an engine stores for us. The sandboxes know which images are in use: an image with a
 * sandbox cannot be removed. All on the loop.
 */
#pragma once

#include "daemon/engine/engine-images.h"
#include "daemon/engine/engine.h"
#include "lib/base/err.h"

struct manager;

/*
 * engine NULL: the engine that stores images. Takes the descriptor of the request, also on
 * failure; `used` of a removal is filled in here. done gets the engine's answer as JSON. Returns a
 * failure when the request itself is wrong; done is not called then.
 */
int manager_image(struct manager *m, const char *engine, const struct image_op *req,
                  engine_json_fn done, void *arg, struct err *err);

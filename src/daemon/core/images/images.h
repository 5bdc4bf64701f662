/*
 * Images that an engine keeps for us. What is in use is known here, by the sandboxes: an image that
 * one of them is made of stays.
 */
#pragma once

#include "daemon/engine/engine-images.h"
#include "daemon/engine/engine.h"
#include "lib/base/err.h"

struct manager;

/*
 * engine NULL: the engine that keeps images. The request is borrowed, but for its fd, which is taken
 * in any case; `used` of a removal is filled in here. json: the engine's answer, as it goes out. A
 * failure is for what is wrong with the request itself, and done is not called then.
 */
int manager_image(struct manager *m, const char *engine, const struct image_op *req,
                  engine_json_fn done, void *arg, struct err *err);

/*
 * Images from registries and to them: ripcord-hub fetches and sends, ripcord-image imports and
 * packs, and a pipe is between them. The one has the network and no store, the other the store and
 * no network.
 */
#pragma once

#include "engine/engine.h"

struct native_engine;

void native_hub_init(struct native_engine *n, const struct engine_hub_config *config);
void native_hub_done(struct native_engine *n);

/* ask->name is the image, the detail's "name" where it goes to. */
int native_push(struct native_engine *n, const struct image_ask *ask, const struct deadline *by,
                char **ret, struct err *err);
int native_pull(struct native_engine *n, const struct image_ask *ask, const struct deadline *by,
                char **ret, struct err *err);

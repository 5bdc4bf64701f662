/*
 * Images from registries and to them: ripcord-transfer fetches and sends, ripcord-image imports and
 * packs, and a pipe is between them. The one has the network and no store, the other the store and
 * no network. Files for builds go straight from the hub to where they are wanted.
 */
#pragma once

struct deadline;
struct engine_transfer_config;
struct err;
struct image_pull;
struct image_push;
struct native_engine;

void native_transfer_init(struct native_engine *n, const struct engine_transfer_config *config);
void native_transfer_done(struct native_engine *n);

/* engine-images.h. "name" in the settings is the name in the registry. */
int native_push(struct native_engine *n, const struct image_push *req, const struct deadline *by,
                char **ret, struct err *err);
int native_pull(struct native_engine *n, const struct image_pull *req, const struct deadline *by,
                char **ret, struct err *err);

/* A file that a Dockerfile ADDs. */
struct transfer_file {
    const char *url;
    const char *etag; /* of what is known; may be NULL */
    int to;           /* takes it */
    int events;       /* takes lines of JSON; when its reader goes this ends */
};
/* *ret: as image/transfer/download.h says. */
int native_fetch(struct native_engine *n, const struct transfer_file *f, const struct deadline *by,
                 char **ret, struct err *err);

/*
 * Pulls images from registries and pushes them: ripcord-transfer downloads and uploads,
 * ripcord-image imports and exports, and a pipe connects them. The first has the network and not
 * the store, the second the store and not the network. ripcord-transfer writes files for builds
 * straight to their place.
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

/* daemon/engine/engine-images.h. "name" in the settings is the name in the registry. */
int native_push(struct native_engine *n, const struct image_push *req, const struct deadline *by,
                char **ret, struct err *err);
int native_pull(struct native_engine *n, const struct image_pull *req, const struct deadline *by,
                char **ret, struct err *err);

/* A file that a Dockerfile ADDs. */
struct transfer_file {
    const char *url;
    const char *etag; /* of the cached copy; may be NULL */
    int to;           /* an fd that takes the file */
    int events;       /* an fd that takes progress; the download ends when its reader closes */
};
/* *ret: JSON (image/transfer/download.h). */
int native_fetch(struct native_engine *n, const struct transfer_file *f, const struct deadline *by,
                 char **ret, struct err *err);

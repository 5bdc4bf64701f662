/*
 * Images of the native engine: `host` (host-image.h), and those of the store
 * (image/store/images.h), whose layers sandboxes mount in place. The daemon only reads the store;
 * the program ripcord-image changes it.
 */
#pragma once

#include "lib/base/time.h"
#include "proto/plan.h"

struct cache_mount_op;
struct engine;
struct image_op;
struct native_engine;
struct program;
struct sandbox_request;
struct sandbox_spec;

/* The store's folder, and the owner of its files as an argument (image/archive/confined-ids.h). The
 * caller frees. */
char *native_store_path(const struct native_engine *n);
char *native_store_ids(const struct native_engine *n);

/* engine_ops.resolve, .image and .cache_mounts. */
int native_resolve(struct engine *e, const struct sandbox_spec *spec, const struct deadline *by,
                   char **ret, struct err *err);
int native_image(struct engine *e, const struct image_op *req, const struct deadline *by,
                 char **ret, struct err *err);
int native_cache_mounts(struct engine *e, const struct cache_mount_op *req,
                        const struct deadline *by, char **ret, struct err *err);

/* One run of ripcord-image (proto/image-program.h). */
struct image_tool {
    const char *verb, *arg, *more; /* arg and more may be NULL */
    int in;                        /* its stdin */
    int data;                      /* IMAGE_FD_OUT; -1: none */
};

int image_tool_start(const struct native_engine *n, const struct image_tool *t, struct program *ret,
                     struct err *err);
/* Counts a transfer; ERR_LIMIT when too many run. */
int image_transfer_begin(struct native_engine *n, struct err *err);
void image_transfer_end(struct native_engine *n);

/* For a plan: `layers` (bottom first, perhaps beginning with that of `host`) become names below
 * *ret_dir, the topmost first. Both are new. */
int native_layers(const struct native_engine *n, char *const *layers, char ***ret, char **ret_dir,
                  struct err *err);
/* The folder name of the current generation of image `host`. */
const char *native_host_generation(const struct native_engine *n);

/*
 * Fills the plan's image, layers, user and workdir, and puts the image's variables before *env.
 * Where the spec has the defaults, the image's own user and workdir count; an image that has
 * neither the user `agent` nor a user of its own runs as 1000.
 */
int native_image_plan(struct native_engine *n, const struct sandbox_request *req, struct plan *p,
                      char ***env, struct err *err);

/*
 * Isolation `strict`: makes the copy of the image's layers in the sandbox's own folder
 * (<state>/sandboxes/<id>/image-<hex>) unless it exists, so that sandboxes share no page of them.
 * Copies of an earlier spec are deleted, unless the request keeps that. `sandbox`: the sandbox's
 * folder.
 */
int native_image_own(struct native_engine *n, const struct sandbox_request *req, int sandbox,
                     const struct deadline *by, struct err *err);
/* Deletes the copies that are not for this spec. */
int native_image_drop_copies(struct native_engine *n, const struct sandbox_spec *spec, int sandbox,
                             struct err *err);
/* ERR_INVALID if the image certainly has no account of the name spec->user; numbers are fine. */
int native_image_check_user(struct native_engine *n, const struct sandbox_spec *spec,
                            struct err *err);
/* engine_ops.check: `strict` needs an image of the store. */
int native_image_check(const struct engine *e, const struct sandbox_spec *spec, struct err *err);

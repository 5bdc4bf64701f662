/*
 * The image store: one folder, shared by all sandboxes of a root and by several processes.
 *
 *   layers/<hex>/fs      an unpacked layer, by the digest of its plain tar (its diff id); never
 *                        changed once it is there, and used where it lies
 *   layers/<hex>/about   its size
 *   layers/<hex>/fresh   while it may not be on the disk yet: the boot in which it was made
 *   blobs/<hex>          configurations and manifests, byte for byte, by their digest
 *   images/<hex>         an image, by the digest of its configuration: the layers, bottom first,
 *                        and what a sandbox needs to know of the configuration
 *   refs                 names
 *   cache/<hex>          what a step of a build has come to (image/build/step-cache.h)
 *   mounts/<hex>/        a cache mount of builds (image/archive/mount-cache.h)
 *   tmp/                 what is being made
 *
 * Everything is made below tmp/ and renamed. Before an image is found under its id, its layers and
 * blobs are on the disk, and it is itself before a name leads to it: a crash leaves things that
 * nobody refers to, which the next collection removes. What refers to a layer is counted when it is
 * asked for: names refer to images, so do sandboxes, images to layers and blobs.
 *
 * Who adds holds the lock shared, who collects exclusive; readers need none.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "image/oci/digest.h"
#include "image/oci/manifest.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

enum {
    IMAGES_RECORD_MAX = 1 << 20, /* what we write of one */
    IMAGES_REFS_MAX = 8 << 20,
    IMAGES_HOST_MAX = 64,
};

struct images {
    int dir;                    /* the store's folder */
    int lock;                   /* -1: not held */
    char host[IMAGES_HOST_MAX]; /* from there to where IMAGES_HOST_LAYER lies; "": not known */
};

#define IMAGES_INIT                                                                                \
    {                                                                                              \
        .dir = -1, .lock = -1                                                                      \
    }
#define _cleanup_images_ __attribute__((cleanup(images_done)))

/* Makes its folders. */
int images_open(const char *path, struct images *ret, struct err *err);
void images_done(struct images *s);

/* 1: held; 0: others are at it (only with `wait` false). Released by images_done(). */
int images_lock(struct images *s, bool exclusive, bool wait, struct err *err);

/* ---- names ---- */

/* A name, a digest, or at least 6 digits of one. */
int images_resolve(const struct images *s, const char *name, char ret[static DIGEST_MAX],
                   struct err *err);
/* Gives a name to an image; it may have been another's. */
int images_tag(struct images *s, const char *name, const char *id, struct err *err);
/* 1: taken away; 0: there was none. */
int images_untag(struct images *s, const char *name, struct err *err);
/* All of them: {name: id}. */
int images_refs(const struct images *s, json_t **ret, struct err *err);
/* Which of them is meant: as it is written, else below "localhost/", as Podman calls what has no
 * registry. New, or NULL. */
char *images_ref(const json_t *refs, const char *name);

/* ---- images, layers, blobs ---- */

/* The record of an image; ERR_NOT_FOUND when there is none. */
int images_read(const struct images *s, const char *id, json_t **ret, struct err *err);
/* After its blobs and layers; waits until all of it is on the disk. */
int images_put(struct images *s, const char *id, const json_t *record, struct err *err);
/* Safe from a crash when the image is put. */
int images_put_blob(struct images *s, const char *digest, const void *data, size_t len,
                    struct err *err);
/* A whole blob, checked against its digest; ends with a NUL. */
int images_read_blob(const struct images *s, const char *digest, char **ret, size_t *ret_len,
                     struct err *err);

/* Built on `host`: of a record, and of layers, bottom first. */
bool images_is_on_host(const json_t *record);
bool images_begin_with_host(char *const *layers);
/* `generation`: the name of its folder (daemon/engine/native/host-image.h). */
int images_set_host(struct images *s, const char *generation, struct err *err);
/* Layers of a record, bottom first, with that of `host` where it is built on it. */
int images_layers(const json_t *record, char ***ret, struct err *err);
/* Where a layer lies, from the store's folder; new. */
char *images_layer_path(const struct images *s, const char *layer);

bool images_has_layer(const struct images *s, const char *digest);
/* Moves tmp/<name>, which holds fs/, to its place; fine when another was faster: then, or when what
 * a crash has left was in the way, something is still at tmp/<name>. Safe from a crash when an
 * image that has it is put, or with images_settle(). */
int images_put_layer(struct images *s, const char *digest, const char *name, uint64_t bytes,
                     struct err *err);
/* Is any of them (digests) not known to be on the disk? */
bool images_are_fresh(const struct images *s, const json_t *layers);
/* Waits until all that has been written to the store is on the disk; they are not fresh then. */
int images_settle(struct images *s, const json_t *layers, struct err *err);
/* Digests, bottom first, as one mount takes them: the topmost first and none twice, which overlayfs
 * refuses. All that the lower of two equal layers says is said again by the upper. New. */
char **images_stack(char *const *layers);
uint64_t images_layer_bytes(const struct images *s, const char *digest);

/* {"images": […], "bytes": …}: each with its names and sizes; layers that several share are counted
 * once in "bytes", and in no image's "own_bytes". */
int images_list(const struct images *s, json_t **ret, struct err *err);

/* What was done for an image of that list, the oldest first: [{"created_by": TEXT, "created": TIME,
 * "layer": DIGEST, "bytes": …}]; null is what its configuration does not say. */
int images_history(const struct images *s, const json_t *image, json_t **ret, struct err *err);

/* ---- collection; the lock is held, exclusively ---- */

typedef int (*images_remove_fn)(void *arg, int dirfd, const char *name, struct err *err);

struct images_collected {
    uint64_t images, layers, bytes;
};

/* Removes images that have no name and are not in `used` (ids), then layers and blobs that no image
 * has, and leftovers. What builds may use again goes too, unless it is to be kept. */
int images_collect(struct images *s, char *const *used, bool keep_cache, images_remove_fn fn,
                   void *arg, struct images_collected *ret, struct err *err);

/*
 * The image store: one folder, shared by all sandboxes of a root and by several processes.
 *
 *   layers/<hex>/fs      an unpacked layer, by the digest of its plain tar (its diff id); never
 *                        changed, and mounted from this place
 *   layers/<hex>/about   its size
 *   layers/<hex>/fresh   exists until the layer is safely on the disk: the boot id of its creation
 *   blobs/<hex>          configurations and manifests, byte for byte, by their digest
 *   images/<hex>         the record of an image, by the digest of its configuration: the layers,
 *                        bottom first, and the parts of the configuration that a sandbox needs
 *   refs                 names
 *   cache/<hex>          the result of a build step (image/build/step-cache.h)
 *   mounts/<hex>/        a cache mount of builds (image/archive/mount-cache.h)
 *   tmp/                 unfinished objects
 *
 * Every object is created in tmp/ and renamed. An image gets its record after its layers and blobs
 * are on the disk, and a name after its record. A crash therefore leaves only objects without a
 * reference, and the next collection removes them. References are not stored but counted on demand:
 * names and sandboxes refer to images, images refer to layers and blobs.
 *
 * A process that adds holds the lock shared; a process that collects holds it exclusively. Readers
 * need no lock. Nothing here is thread-safe for one struct images.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "image/oci/digest.h"
#include "image/oci/manifest.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

enum {
    IMAGES_RECORD_MAX = IMAGES_CONFIG_MAX + (1 << 20), /* bytes of one record */
    IMAGES_REFS_MAX = 8 << 20,
    IMAGES_HOST_MAX = 64,
};

struct images {
    int dir;                    /* the store's folder */
    int lock;                   /* -1: not held */
    char host[IMAGES_HOST_MAX]; /* path of IMAGES_HOST_LAYER from `dir`; "": not known */
};

#define IMAGES_INIT                                                                                \
    {                                                                                              \
        .dir = -1, .lock = -1                                                                      \
    }
#define _cleanup_images_ __attribute__((cleanup(images_done)))

/* Creates the folders that are missing. */
int images_open(const char *path, struct images *ret, struct err *err);
void images_done(struct images *s);

/* 1: held; 0: others hold it (only with `wait` false). images_done() releases it. */
int images_lock(struct images *s, bool exclusive, bool wait, struct err *err);

/* ---- names ---- */

/* name: a name, a digest, or at least the first 6 digits of a digest. */
int images_resolve(const struct images *s, const char *name, char ret[static DIGEST_MAX],
                   struct err *err);
/* Gives a name to an image, and takes it from an image that had it before. */
int images_tag(struct images *s, const char *name, const char *id, struct err *err);
/* 1: removed; 0: there is no such name. */
int images_untag(struct images *s, const char *name, struct err *err);
/* All names: {name: id}. */
int images_refs(const struct images *s, json_t **ret, struct err *err);
/* The name in `refs` for `name`: the same name, or the same below "localhost/", which Podman
 * adds to names without a registry. New, or NULL. */
char *images_ref(const json_t *refs, const char *name);

/* ---- images, layers, blobs ---- */

/* The record of an image. Fails with ERR_NOT_FOUND if there is no such image. */
int images_read(const struct images *s, const char *id, json_t **ret, struct err *err);
/* Adds an image after its blobs and layers. Waits until all of them are on the disk. */
int images_put(struct images *s, const char *id, const json_t *record, struct err *err);
/* The blob survives a crash only after images_put() of its image. */
int images_put_blob(struct images *s, const char *digest, const void *data, size_t len,
                    struct err *err);
/* Reads a whole blob and checks its digest. The text ends with a NUL. */
int images_read_blob(const struct images *s, const char *digest, char **ret, size_t *ret_len,
                     struct err *err);

/* Whether an image is built on `host`: by its record, or by its layers, bottom first. */
bool images_is_on_host(const json_t *record);
bool images_begin_with_host(char *const *layers);
/* Sets s->host. generation: the name of the folder (daemon/engine/native/host-image.h). */
int images_set_host(struct images *s, const char *generation, struct err *err);
/* The layers of a record, bottom first; the first is IMAGES_HOST_LAYER if it is built on `host`. */
int images_layers(const json_t *record, char ***ret, struct err *err);
/* Path of a layer from the store's folder; new. */
char *images_layer_path(const struct images *s, const char *layer);

bool images_has_layer(const struct images *s, const char *digest);
/* Moves tmp/<name>, which contains fs/, to its place. Succeeds also if the store already has the
 * layer. After that, or if an incomplete layer was in its place, tmp/<name> still exists. The layer
 * survives a crash only after images_put() of an image with it, or images_settle(). */
int images_put_layer(struct images *s, const char *digest, const char *name, uint64_t bytes,
                     struct err *err);
/* Whether one of the layers (digests) may not be on the disk yet. */
bool images_are_fresh(const struct images *s, const json_t *layers);
/* Waits until the whole store is on the disk. The layers are not fresh after that. */
int images_settle(struct images *s, const json_t *layers, struct err *err);
/* Layers (bottom first) in the order of an overlay mount: top first, and no layer twice, which
 * overlayfs refuses. The lower of two equal layers is redundant. New. */
char **images_stack(char *const *layers);
uint64_t images_layer_bytes(const struct images *s, const char *digest);

/* {"images": […], "bytes": …}: each image with its names and sizes. A layer of several images
 * counts once in "bytes" of the list, and in no image's "own_bytes". */
int images_list(const struct images *s, json_t **ret, struct err *err);

/* The build history of an image of that list, oldest first: [{"created_by": TEXT, "created": TIME,
 * "layer": DIGEST, "bytes": …}]. A value is null if the configuration does not contain it. */
int images_history(const struct images *s, const json_t *image, json_t **ret, struct err *err);

/* ---- collection; the caller holds the lock exclusively ---- */

typedef int (*images_remove_fn)(void *arg, int dirfd, const char *name, struct err *err);

struct images_collected {
    uint64_t images, layers, bytes;
};

/* Removes images without a name that are not in `used` (ids), then layers and blobs without an
 * image, and leftovers in tmp/. The cache of build steps is removed too, unless keep_cache is set.
 * fn(arg, …) removes a tree. */
int images_collect(struct images *s, char *const *used, bool keep_cache, images_remove_fn fn,
                   void *arg, struct images_collected *ret, struct err *err);

/*
 * The documents of images: Docker's list in `docker save` archives, OCI indexes, manifests and
 * configurations. They come from outside: every digest, count and name in them is checked here.
 */
#pragma once

#include <stdint.h>

#include "image/oci/digest.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/* As images call it. */
#if defined(__x86_64__)
#define IMAGES_ARCHITECTURE "amd64"
#elif defined(__aarch64__)
#define IMAGES_ARCHITECTURE "arm64"
#endif

enum {
    MANIFEST_IMAGES_MAX = 64,
    MANIFEST_TAGS_MAX = 64,
    IMAGES_BLOB_MAX = 4 << 20, /* a configuration or manifest */
    IMAGES_LAYERS_MAX = 100,   /* what one overlay mount takes: proto/plan.h */
};

/*
 * Stands at the bottom of a list of layers where an image is built on `host`: in place of a digest,
 * as that layer is this machine's own, made by each daemon for itself, and lies beside the store.
 * An image's record says it with "base": "host", and its "layers" are those above.
 */
#define IMAGES_HOST_LAYER "host-1"

/* ---- `docker save`: manifest.json ---- */

struct saved_image {
    char *config;  /* name in the archive */
    char **tags;   /* may be empty */
    char **layers; /* names in the archive, bottom first */
};

struct saved_images {
    struct saved_image *v;
    size_t n;
};

int saved_images_parse(const char *text, size_t len, struct saved_images *ret, struct err *err);
void saved_images_done(struct saved_images *s);

/* ---- OCI ---- */

struct oci_descriptor {
    char digest[DIGEST_MAX];
    uint64_t size;
};

/* An entry of an index. */
struct oci_index_entry {
    struct oci_descriptor d;
    bool is_index; /* of further ones */
    char *name;    /* as annotated, or NULL */
};

struct oci_index {
    struct oci_index_entry *v; /* those for this machine, or of no platform in particular */
    size_t n;
};

int oci_index_parse(const char *text, size_t len, struct oci_index *ret, struct err *err);
/* platform: "os/architecture[/variant]" instead of this machine's; NULL: this machine's. */
int oci_index_parse_for(const char *text, size_t len, const char *platform, struct oci_index *ret,
                        struct err *err);
void oci_index_done(struct oci_index *x);

struct oci_manifest {
    struct oci_descriptor config;
    struct oci_descriptor *layers; /* bottom first */
    size_t n;
};

int oci_manifest_parse(const char *text, size_t len, struct oci_manifest *ret, struct err *err);
void oci_manifest_done(struct oci_manifest *m);

/* ---- configuration ---- */

/* Says IMAGES_HOST_LAYER of an image that is built on it. */
#define IMAGE_CONFIG_BASE "ripcord.base"

/* *ret is the record that the store keeps of it (image/store/images.h), without what only the
 * importer knows: layers, base, architecture, created, env, user, workdir, entrypoint, cmd. */
int image_config_parse(const char *text, size_t len, json_t **ret, struct err *err);
/* This machine's, in the words of images. */
const char *image_config_architecture(void);
/* platform as in oci_index_parse_for(). */
int image_config_parse_for(const char *text, size_t len, const char *platform, json_t **ret,
                           struct err *err);
/* Of an image that came without: one layer, for this machine. The same each time. New. */
char *image_config_make(const char *diff_id);

/*
 * Documents of images: the list in `docker save` archives, and OCI indexes, manifests and
 * configurations. They are untrusted: the parsers check every digest, count and name.
 *
 * A parser fills *ret only on success; the caller releases it with the _done() function.
 */
#pragma once

#include <stdint.h>

#include "image/oci/digest.h"
#include "lib/base/command-size.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/* This machine's architecture, in the words of OCI. */
#if defined(__x86_64__)
#define IMAGES_ARCHITECTURE "amd64"
#elif defined(__aarch64__)
#define IMAGES_ARCHITECTURE "arm64"
#endif

enum {
    MANIFEST_IMAGES_MAX = 64,
    MANIFEST_TAGS_MAX = 64,
    IMAGES_BLOB_MAX = 4 << 20, /* a manifest or index */
    /* A configuration: its variables, of which JSON writes some bytes as six, and the rest. */
    IMAGES_CONFIG_MAX = 6 * COMMAND_MAX + IMAGES_BLOB_MAX,
    IMAGES_LAYERS_MAX = 100, /* the limit of one overlay mount: proto/plan.h */
};

/*
 * The bottom layer of an image that is built on `host`. It stands in lists of layers in place of a
 * digest, because each daemon creates that layer for its own machine, outside of the store. The
 * record of such an image has "base": "host", and its "layers" do not contain this one.
 */
#define IMAGES_HOST_LAYER "host-1"

/* ---- manifest.json of `docker save` ---- */

struct saved_image {
    char *config;  /* owned: its name in the archive */
    char **tags;   /* owned; can be empty */
    char **layers; /* owned: their names in the archive, bottom first */
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

struct oci_index_entry {
    struct oci_descriptor d;
    bool is_index; /* the entry is another index */
    char *name;    /* owned: from its annotations, or NULL */
};

struct oci_index {
    struct oci_index_entry *v; /* owned: the entries that fit the platform */
    size_t n;
};

int oci_index_parse(const char *text, size_t len, struct oci_index *ret, struct err *err);
/* platform: "os/architecture[/variant]"; NULL: this machine's. */
int oci_index_parse_for(const char *text, size_t len, const char *platform, struct oci_index *ret,
                        struct err *err);
void oci_index_done(struct oci_index *x);

struct oci_manifest {
    struct oci_descriptor config;
    struct oci_descriptor *layers; /* owned; bottom first */
    size_t n;
};

int oci_manifest_parse(const char *text, size_t len, struct oci_manifest *ret, struct err *err);
void oci_manifest_done(struct oci_manifest *m);

/* ---- configuration ---- */

/* The field of a configuration that names IMAGES_HOST_LAYER, for an image built on `host`. */
#define IMAGE_CONFIG_BASE "ripcord.base"

/* *ret is the record for the store (image/store/images.h): layers, base, architecture, created,
 * env, user, workdir, entrypoint, cmd. The importer adds the other fields. */
int image_config_parse(const char *text, size_t len, json_t **ret, struct err *err);
/* IMAGES_ARCHITECTURE. */
const char *image_config_architecture(void);
/* platform: as in oci_index_parse_for(). */
int image_config_parse_for(const char *text, size_t len, const char *platform, json_t **ret,
                           struct err *err);
/* A configuration for a root file system: one layer, for this machine. The same text each time.
 * New. */
char *image_config_make(const char *diff_id);

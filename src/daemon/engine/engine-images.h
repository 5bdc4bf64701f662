/*
 * Operations on the images that an engine keeps, and on the cache mounts of its builds. Both
 * are tagged: the verb says which member of the union counts; a verb without a member needs nothing
 * more. The answers are JSON documents, which the API passes on.
 *
 * Strings are borrowed from the caller. engine_image() copies them; image_op_done() releases
 * such a copy. The fd of an operation is always taken, also when the call fails.
 */
#pragma once

#include <stdint.h>

enum image_verb {
    IMAGE_LIST,
    IMAGE_SHOW,
    IMAGE_IMPORT,
    IMAGE_EXPORT,
    IMAGE_PULL,
    IMAGE_PUSH,
    IMAGE_REMOVE,
    IMAGE_PRUNE,
};

struct image_show {
    char *name;
};

struct image_import {
    char *name;  /* the image's name in the store; NULL: the name in the archive */
    int archive; /* an fd, read to its end */
};

struct image_export {
    char *name;
    char *format; /* "oci" or "docker" */
    int archive;  /* an fd that takes the archive */
};

struct image_pull {
    char *name;     /* the image's name in the store; NULL: as in the registry */
    char *settings; /* JSON (image/transfer/settings.h) with the remote name; may hold a password */
    int progress;   /* an fd that takes progress as lines of JSON */
};

struct image_push {
    char *name;     /* the image in the store */
    char *settings; /* as in struct image_pull */
    int progress;
};

struct image_remove {
    char *name;
    char **used; /* digests of the images that sandboxes are made of */
};

struct image_prune {
    char **used; /* as in struct image_remove */
};

struct image_op {
    enum image_verb verb;
    union {
        struct image_show show;
        struct image_import import;
        struct image_export export;
        struct image_pull pull;
        struct image_push push;
        struct image_remove remove;
        struct image_prune prune;
    };
};

/* Copies the strings; the fd moves. */
void image_op_copy(struct image_op *dst, const struct image_op *src);
/* Closes the fd of an operation that is not handed on. */
void image_op_close(const struct image_op *r);
/* Releases a copy: closes its fd and overwrites the settings. */
void image_op_done(struct image_op *r);

enum cache_mount_verb { CACHE_MOUNT_LIST, CACHE_MOUNT_REMOVE, CACHE_MOUNT_TRIM };

struct cache_mount_remove {
    char *id;
};

struct cache_mount_trim {
    uint64_t keep;   /* bytes that may stay */
    uint64_t unused; /* seconds: mounts that were not used for so long go too; 0: no such limit */
};

struct cache_mount_op {
    enum cache_mount_verb verb;
    union {
        struct cache_mount_remove remove;
        struct cache_mount_trim trim;
    };
};

void cache_mount_op_copy(struct cache_mount_op *dst, const struct cache_mount_op *src);
void cache_mount_op_done(struct cache_mount_op *r);

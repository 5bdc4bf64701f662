/*
 * A tar file with an image in it (OCI layout, `docker save`): where each of its files lies. Links
 * inside of it, which older Docker writes for a layer that occurs twice, are followed once.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/map.h"

struct tar_index {
    int fd; /* borrowed */
    struct map files;
};

struct tar_index_file {
    uint64_t at, size;
    char *link; /* its target in the archive if it is a link, or NULL */
};

enum { BUNDLE_FILES_MAX = 16384 };

/* Gives up on an archive with more files than that: *ret then holds the first ones. */
int tar_index_open(int fd, struct tar_index *ret, struct err *err);
void tar_index_done(struct tar_index *b);

/* NULL: there is no such file. */
const struct tar_index_file *tar_index_find(const struct tar_index *b, const char *name);
/* A whole file of up to `max` bytes; ends with a NUL. */
int tar_index_read(const struct tar_index *b, const char *name, size_t max, char **ret,
                   size_t *ret_len, struct err *err);

/*
 * The places of the files in a tar that contains an image (OCI layout, `docker save`). Links in the
 * archive are followed once: older versions of Docker write one for a layer that occurs twice.
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
    char *link; /* owned: the target in the archive, for a link; else NULL */
};

enum { TAR_INDEX_FILES_MAX = 16384 };

/* Reads at most TAR_INDEX_FILES_MAX files; *ret then holds the first ones. */
int tar_index_open(int fd, struct tar_index *ret, struct err *err);
void tar_index_done(struct tar_index *b);

/* NULL: the archive has no such file. */
const struct tar_index_file *tar_index_find(const struct tar_index *b, const char *name);
/* A whole file of up to `max` bytes; ends with a NUL. */
int tar_index_read(const struct tar_index *b, const char *name, size_t max, char **ret,
                   size_t *ret_len, struct err *err);

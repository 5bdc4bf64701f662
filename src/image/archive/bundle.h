/*
 * A tar file with an image in it (OCI layout, `docker save`): where each of its files lies. Links
 * inside of it, which older Docker writes for a layer that occurs twice, are followed once.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/map.h"

struct bundle {
    int fd; /* borrowed */
    struct map files;
};

struct bundle_file {
    uint64_t at, size;
    char *link; /* a name in the bundle instead, or NULL */
};

enum { BUNDLE_FILES_MAX = 16384 };

/* Gives up on an archive with more files than that: *ret then holds the first ones. */
int bundle_open(int fd, struct bundle *ret, struct err *err);
void bundle_done(struct bundle *b);

/* NULL: there is no such file. */
const struct bundle_file *bundle_find(const struct bundle *b, const char *name);
/* A whole file of up to `max` bytes; ends with a NUL. */
int bundle_read(const struct bundle *b, const char *name, size_t max, char **ret, size_t *ret_len,
                struct err *err);

/*
 * Measures the disk space and counts the files of a tree. The tree is hostile and may change during
 * the walk: no symlink is followed, no mount is crossed, and the walk has a deadline.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

struct disk_usage {
    uint64_t bytes, files; /* every folder and link is a file too */
};

/* Adds dirfd/path to *sum. A missing path counts as 0. After ERR_TIMEOUT, or ERR_LIMIT for a tree
 * that is too deep, *sum holds the part that was seen. */
int usage_count(int dirfd, const char *path, const struct deadline *by, struct disk_usage *sum,
                struct err *err);
/* The bytes alone. */
int usage_add(int dirfd, const char *path, const struct deadline *by, uint64_t *sum,
              struct err *err);

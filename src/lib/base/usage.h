/*
 * Measures the disk space of a tree. The tree is hostile and may change during the walk: no symlink
 * is followed, no mount is crossed, and the walk has a deadline.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

/* A file counts with so many bytes more in usage_weigh(): many empty files are a big tree too. */
enum { USAGE_FILE_WEIGHT = 4096 };

/* Like usage_add(), with the weight of each file. */
int usage_weigh(int dirfd, const char *path, const struct deadline *by, uint64_t *sum,
                struct err *err);
/* Adds the bytes of dirfd/path to *sum. A missing path counts as 0. After ERR_TIMEOUT, or ERR_LIMIT
 * for a tree that is too deep, *sum holds the part that was seen. */
int usage_add(int dirfd, const char *path, const struct deadline *by, uint64_t *sum,
              struct err *err);

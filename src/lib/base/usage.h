/*
 * How much of the disk a tree takes. The tree is hostile and may be written to meanwhile: no
 * symlink is followed, no mount crossed, and the walk has a deadline.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

/* Adds the bytes of dirfd/path to *sum; fine when there is none. ERR_TIMEOUT, or ERR_LIMIT when the
 * tree is too deep: *sum then has what was seen. */
int usage_add(int dirfd, const char *path, const struct deadline *by, uint64_t *sum,
              struct err *err);

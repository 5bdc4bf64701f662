/*
 * `--disk`: a sparse ext4 image of that size per sandbox, which the shim mounts in place of the
 * sandbox's folder (supervisor/shim/disk.h). Its blocks and its inodes are the cap; it takes from
 * the host's disk only what is really written. See docs/decisions/007-disk-images.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

#define DISK_IMAGE "disk.img"

/* Whether images can be made and mounted here; *why (may be NULL) gets what is missing, static. */
bool disk_possible(const char **why);

/* Makes DISK_IMAGE in the sandbox's folder, whole or not at all; fine when it is there already. */
int disk_make(const char *folder, uint64_t size, const struct deadline *by, struct err *err);

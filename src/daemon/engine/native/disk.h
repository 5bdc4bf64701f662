/*
 * The disk limit (`--disk`): each sandbox has a sparse ext4 image of that size, which the shim
 * mounts over the sandbox's folder (supervisor/shim/disk.h). Its blocks and inodes are the limit;
 * it takes only the space that is really written. See docs/decisions/007-disk-images.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

#define DISK_IMAGE "disk.img"

/* Whether disk images can be made and mounted here; *why (may be NULL): the reason, static. */
bool disk_possible(const char **why);

/* Makes DISK_IMAGE in the sandbox's folder, whole or not at all; fine when it already exists. */
int disk_make(const char *folder, uint64_t size, const struct deadline *by, struct err *err);

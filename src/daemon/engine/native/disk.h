/*
 * The disk limit (`--disk`) and the budget of all other sandboxes (disk.budget). Where the file
 * system has project quotas, a quota holds both. Elsewhere a sandbox with a limit has a sparse ext4
 * image of that size, which the shim mounts over the sandbox's folder (supervisor/shim/disk.h), and
 * the budget is only watched (daemon/core/sandbox/disk-budget.h), unless disk.images asks for
 * images here too. See docs/decisions/007-disk-images.md and 032-disk-budget.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

#define DISK_IMAGE "disk.img"

/* Whether disk images can be made and mounted here; *why (may be NULL): the reason, static. */
bool disk_possible(const char **why);

/* How many files a limit of so many bytes allows; 0 bytes: no limit of either. */
uint64_t disk_files(uint64_t size);
/* Whether the sandbox in this folder cannot exceed its limit or budget. */
bool disk_is_held(bool quota, int dir);

/* Makes DISK_IMAGE in the sandbox's folder, whole or not at all; fine when it already exists. */
int disk_make(const char *folder, uint64_t size, const struct deadline *by, struct err *err);

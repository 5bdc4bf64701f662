/*
 * The disk of a sandbox that has a limit: an ext4 image, mounted by the shim through a loop device.
 * Both are anonymous (a detached mount, autoclear): they vanish with the sandbox's processes, also
 * when all of us are killed, and there is nothing to undo.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

/* The mount, detached, nosuid and nodev, not id-mapped yet. Waits while an earlier run still has
 * the image. throw_away: nothing on it need survive a crash of the machine. */
int disk_mount(const char *image, bool throw_away, int *ret, struct err *err);

/*
 * What lies on the disk belongs to the spec with this hash: when that has changed, the root layer
 * goes; /home/agent and /cache stay. dirfd is the mount's root.
 */
int disk_renew(int dirfd, const char *hash, struct err *err);

/*
 * The disk of a sandbox with a disk limit: an ext4 image that the shim mounts through a loop
 * device. The mount is detached and the loop device has autoclear, so both disappear with the
 * sandbox's processes, even if the daemon and the shim are killed. No cleanup is needed.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

/* *ret: the mount, detached, nosuid and nodev, not id-mapped yet. Waits while a previous run still
 * uses the image. ephemeral: the content need not survive a crash of the machine. */
int disk_mount(const char *image, bool ephemeral, int *ret, struct err *err);

/*
 * Makes the root layer new if the disk was written for a spec with another hash; /home/agent and
 * /cache stay. dirfd is the mount's root. 1: the root of the previous spec is kept, and comes back
 * if the next start is for that spec. disk_drop_old() removes it when the daemon has stored the
 * new spec: until then a daemon that is killed, or cannot store it, returns to the previous one.
 */
int disk_renew(int dirfd, const char *hash, struct err *err);
int disk_drop_old(int dirfd, struct err *err);

/*
 * A full disk must not keep the sandbox from starting: nobody could delete files then. An overlay
 * needs a few free inodes and blocks at its mount, so a reserve of them is released first where
 * little is free, and made again before the sandbox's first command can write.
 */
int disk_release_reserve(int dirfd, struct err *err);
int disk_make_reserve(int dirfd, struct err *err);

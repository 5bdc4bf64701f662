/*
 * Mounts by descriptor (open_tree, move_mount, mount_setattr, fsopen): a mount is made detached,
 * set up whole, and attached last, to a place that is itself a descriptor. No path below a
 * sandbox's root is ever handed to mount(2).
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

enum mount_flags {
    MOUNT_RDONLY = 1 << 0,
    MOUNT_NOSUID = 1 << 1,
    MOUNT_NODEV = 1 << 2,
    MOUNT_NOEXEC = 1 << 3,
    MOUNT_RECURSIVE = 1 << 4, /* mount_clone, mount_set: with everything mounted below */
};
#define MOUNT_SAFE (MOUNT_NOSUID | MOUNT_NODEV)

/* A detached copy of what is at dirfd/path ("" is dirfd itself). Symlinks at the end are not
 * followed. */
int mount_clone(int dirfd, const char *path, unsigned flags, int *ret, struct err *err);
/* Sets attributes of a detached mount; userns_fd >= 0 also maps its ids. */
int mount_set(int mount_fd, unsigned flags, int userns_fd, struct err *err);
/* A new file system, detached. options: "key=value" or "key", NULL-terminated; may be NULL. */
int mount_new(const char *fstype, const char *const *options, unsigned flags, int *ret,
              struct err *err);
/* Attaches the mount at dirfd/path ("" is dirfd itself). */
int mount_attach(int mount_fd, int dirfd, const char *path, struct err *err);

/* Cuts all propagation between this mount namespace and its parent. */
int mount_make_private(struct err *err);
/* Makes the mount behind root_fd the root, and detaches the old root with all mounts below it. */
int mount_pivot(int root_fd, struct err *err);

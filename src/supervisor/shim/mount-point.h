/*
 * Mount points in a root file system that hostile code may have prepared. A mount point is opened
 * by descriptor without following any symlink, created if it is missing, and only then mounted on.
 */
#pragma once

#include <sys/types.h>

#include "lib/base/err.h"

enum mount_point_kind { MOUNT_POINT_FOLDER, MOUNT_POINT_FILE };

/* O_PATH descriptor of root_fd/path (with or without a leading slash), created if missing. */
int mount_point_open(int root_fd, const char *path, enum mount_point_kind kind, int *ret,
                     struct err *err);

/* Opens the mount point and attaches the mount there. */
int mount_point_mount(int root_fd, const char *path, enum mount_point_kind kind, int mount_fd,
                      struct err *err);

/* Create a folder, link or small file in a tree that we have made ourselves. */
int mount_point_mkdir(int dirfd, const char *path, mode_t mode, struct err *err);
int mount_point_symlink(int dirfd, const char *path, const char *to, struct err *err);
int mount_point_write(int dirfd, const char *path, const char *text, struct err *err);

/*
 * overlayfs inside a user namespace. Layer names are resolved in the working folder, and the mount
 * table shows them as given. So callers change to the right folder and use short relative names.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

struct overlay {
    const char *lower; /* relative names, also below */
    const char *upper; /* NULL: the overlay is read-only, and `lower` must name two layers */
    const char *work;
    bool unsynced; /* unmounting does not wait for the disk: the upper layer is thrown away, or the
                      caller syncs it. Never mount it again with the same work folder. */
};

/* A detached mount, nosuid and nodev. */
int overlay_mount(const struct overlay *o, int *ret, struct err *err);

/*
 * Makes new layers of a root, dirfd/root/{upper,work}, and keeps one folder of the upper layer.
 * First call _begin, which moves that folder to root.next; then remove root; then call _end. The
 * whole can be started again after a crash at any point. A folder that cannot be moved, because of
 * its owner, is lost.
 */
int overlay_renew_begin(int dirfd, const char *keep, struct err *err);
int overlay_renew_end(int dirfd, struct err *err);

#define OVERLAY_ROOT_NEXT "root.next"
#define OVERLAY_ROOT_OLD "root.old"

/*
 * To be able to go back to the old root: overlay_keep(), between _begin and _end, renames root to
 * root.old instead of removing it. To go back after any of these steps: call _undo_begin, which
 * returns 1 if the old root is in root.old; then remove root and call _undo_end. Then remove
 * root.next. After a crash, the whole sequence can be started again.
 */
int overlay_keep(int dirfd, struct err *err);
int overlay_keep_undo_begin(int dirfd, const char *keep, struct err *err);
int overlay_keep_undo_end(int dirfd, struct err *err);

/*
 * overlayfs inside a user namespace. Layer names are resolved in the working directory and show in
 * the mount table as given: callers stand in a scaffold and use short relative names.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

struct overlay {
    const char *lower, *upper, *work; /* relative names */
    bool unsynced; /* its end does not wait for the disk: nobody needs the upper layer there, or
                      syncs it himself. Never mounted again with the same work folder. */
};

/* A detached mount, nosuid and nodev. */
int overlay_mount(const struct overlay *o, int *ret, struct err *err);

/*
 * Layers of a root, dirfd/root/{upper,work}, made anew but for one folder of the upper layer. First
 * _begin, which takes that folder over into root.next; then the caller removes root in its own way;
 * then _end. Cut short anywhere it can be begun again. What cannot be taken over is left to its
 * fate: a folder whose owner is not ours to move things for.
 */
int overlay_renew_begin(int dirfd, const char *keep, struct err *err);
int overlay_renew_end(int dirfd, struct err *err);

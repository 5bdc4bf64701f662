/*
 * Removal of trees that hostile code has built: no symlink is followed, no mount crossed, no path
 * longer than one name used inside, and depth costs neither stack nor descriptors.
 */
#pragma once

#include "lib/base/err.h"

/*
 * Removes dirfd/path, a folder or a file; fine when there is none. The way there is the caller's
 * own and trusted. A mount point inside is ERR_CONFLICT and stays with all below it. Not for trees
 * that someone still writes to: it ends, but may report ENOTEMPTY.
 */
int rmtree(int dirfd, const char *path, struct err *err);

/*
 * Removal of trees that hostile code has built: no symlink is followed, no mount crossed, no path
 * longer than one name used, and depth costs neither stack nor descriptors.
 */
#pragma once

#include "base/err.h"

/*
 * Removes dirfd/name, a folder or a file; fine when there is none. A mount point inside is
 * ERR_CONFLICT and stays with all below it. Not for trees that someone still writes to: it ends,
 * but may report ENOTEMPTY.
 */
int rmtree(int dirfd, const char *name, struct err *err);

/*
 * Removes trees that hostile code has built. It follows no symlink, crosses no mount, uses no path
 * longer than one name, and needs bounded stack and descriptors at any depth.
 */
#pragma once

#include "lib/base/err.h"

/*
 * Removes dirfd/path, a folder or a file; a missing one is not an error. The path to it must be
 * trusted. A mount point inside is ERR_CONFLICT and stays with everything below it. When a process
 * still writes to the tree, the removal ends, but may report ENOTEMPTY.
 */
int rmtree(int dirfd, const char *path, struct err *err);

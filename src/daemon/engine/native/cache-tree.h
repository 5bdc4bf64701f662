/*
 * Trees of the shared package caches: of our own making and written by nobody else, but with
 * contents that packages chose. No symlink is followed; too deep is an error.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

/* The tree dirfd/from again as dirfd/to, which must not be there: folders are new, everything else
 * is the same file under another name. */
int cache_tree_link(int dirfd, const char *from, const char *to, struct err *err);

/*
 * Makes all of it usable for every user of a sandbox: folders and files are the agent's (with
 * `chown`; ids on disk are 0-based then) and everybody may write, which is always to a copy.
 * What is neither folder, file nor link is removed.
 */
int cache_tree_open_up(int dirfd, const char *path, bool chown, struct err *err);

/*
 * Copies and opens folder trees of the shared package caches. Only we write these trees, but
 * packages chose their contents: no symlink is followed, and a tree that is too deep is an error.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

/* Copies the tree dirfd/from to dirfd/to, which must not exist: folders are new, all other files
 * are hard links. */
int cache_tree_link(int dirfd, const char *from, const char *to, struct err *err);

/*
 * Makes the tree usable for every user of a sandbox: the agent owns folders and files (with
 * `chown`; ids on disk are 0-based then) and everybody may write, which always goes to a copy.
 * Entries other than folders, files and symlinks are removed.
 */
int cache_tree_open_up(int dirfd, const char *path, bool chown, struct err *err);

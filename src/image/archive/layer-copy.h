/*
 * Copies the layers of an image for a sandbox that shares no file with another (isolation
 * `strict`). Every file is a new inode with its own pages in the page cache. If the file system can
 * share blocks between files (btrfs, XFS), the copy takes no space on the disk.
 */
#pragma once

#include <stdint.h>

#include "image/archive/confined.h"
#include "image/store/images.h"
#include "lib/base/err.h"

struct layer_copy_stats {
    uint64_t files, bytes;
};

/* Creates <hex>/fs for each layer in the empty folder `to`. On failure the folder can hold anything.
 * The caller holds the store's lock. */
int layer_copy_image(const struct images *s, const struct confined_ids *ids, const char *id, int to,
                     struct layer_copy_stats *ret, struct err *err);

/* Copies one tree with modes, times, xattrs `user.*`, hard links and whiteouts; with its owners if
 * `owners` is set. */
int layer_copy_tree(int from, int to, bool owners, struct layer_copy_stats *stats, struct err *err);

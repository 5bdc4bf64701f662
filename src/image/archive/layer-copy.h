/*
 * The layers of an image once more, for a sandbox that shares no file with another (isolation
 * `strict`). Every file is a new inode with pages of its own in the page cache; where the file
 * system can share blocks between files (btrfs, XFS) the copy takes no room on the disk.
 */
#pragma once

#include <stdint.h>

#include "image/archive/confined.h"
#include "image/store/images.h"
#include "lib/base/err.h"

struct layer_copy_stats {
    uint64_t files, bytes;
};

/* Into `to`, an empty folder: <hex>/fs for each layer. On failure it holds anything. The store's
 * lock is held. */
int layer_copy_image(const struct images *s, const struct confined_ids *ids, const char *id, int to,
                     struct layer_copy_stats *ret, struct err *err);

/* One tree, with owners if told so, modes, times, xattrs `user.*`, hard links and whiteouts. */
int layer_copy_tree(int from, int to, bool owners, struct layer_copy_stats *stats, struct err *err);

/*
 * Unpacks one layer of an image, from its tar stream to a folder that overlayfs accepts as a lower
 * layer (option userxattr). The archive is untrusted. Unpacking therefore runs in a child that has
 * only that folder (image/archive/confined.h), and is also safe by itself: every name is looked up
 * below the folder, without following a link.
 *
 *   kept       files, folders and links, with owner, mode (also set-uid bits, which no mount of
 *              ours honours), time, and xattrs `user.*`
 *   dropped    and counted: devices, FIFOs and all other xattrs (file capabilities, and
 *              `user.overlay.*`, which would redirect lookups)
 *   converted  whiteouts become those of overlayfs
 *   refused    absolute paths, paths with "..", paths through a link, hard links to files outside
 *              of this layer, and everything above a limit
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

enum {
    UNPACK_ENTRIES_MAX = 2 << 20,
    UNPACK_PATH_MAX = 4096, /* with the NUL */
    UNPACK_DEPTH_MAX = 200, /* components */
    UNPACK_XATTRS_MAX = 64, /* per entry */
    UNPACK_ID_MAX = 65535,
};
#define UNPACK_BYTES_MAX (UINT64_C(64) << 30) /* of files, holes counted: the most to ask for */

struct unpack_stats {
    uint64_t entries;
    uint64_t bytes;   /* of files */
    uint64_t dropped; /* devices, FIFOs, xattrs */
};

enum unpack_flags {
    /* Files get the owners in the archive; without it they belong to the caller. */
    UNPACK_OWNERS = 1 << 0,
    /* Files can be omitted (proto/digest-context.h): their digests are kept. */
    UNPACK_DIGEST_ONLY = 1 << 1,
};

/* Reads `in` to its end into the empty folder `dir`. Files of more than `max` bytes together are
 * refused. On failure the folder can hold anything. */
int unpack_layer(int in, int dir, unsigned flags, uint64_t max, struct unpack_stats *ret,
                 struct err *err);

/* The path of an entry without "." and needless slashes; "" is the folder itself. For tests. */
int unpack_name(const char *name, char ret[static UNPACK_PATH_MAX], struct err *err);

/* Shared with packing (image/archive/pack.h). unpack_open() opens a path below `dir` without
 * following a link; unpack_keeps_xattr() says whether a layer keeps an attribute. */
int unpack_open(int dir, const char *path, uint64_t flags);
bool unpack_keeps_xattr(const char *name);

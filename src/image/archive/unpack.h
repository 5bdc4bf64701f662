/*
 * One layer of an image, from its tar stream to a folder that overlayfs takes as a lower layer
 * (option userxattr). The archive is hostile: this runs in a child that has nothing but that folder
 * (image/archive/confined.h), and holds by itself as well: every name is looked up below the folder
 * without following a link.
 *
 * What a layer may hold: files, folders, links, with owner, mode (set-uid bits too, which no mount
 * of ours honours), time, and xattrs `user.*`. Left out and counted: devices, FIFOs, all other
 * xattrs (file capabilities, `user.overlay.*`, which would redirect lookups). Whiteouts become
 * overlayfs's own. Refused: names that are absolute or hold "..", ways through a link, hard links
 * to what is not in this layer, and what is over a limit.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

enum {
    UNPACK_ENTRIES_MAX = 2 << 20,
    UNPACK_PATH_MAX = 4096, /* with the NUL */
    UNPACK_DEPTH_MAX = 200, /* components */
    UNPACK_XATTRS_MAX = 64, /* of one entry */
    UNPACK_ID_MAX = 65535,
};
#define UNPACK_BYTES_MAX (UINT64_C(64) << 30) /* of files, holes counted */

struct unpack_stats {
    uint64_t entries;
    uint64_t bytes;   /* of files */
    uint64_t dropped; /* devices, FIFOs, xattrs */
};

enum unpack_flags {
    UNPACK_OWNERS = 1 << 0, /* the archive's are taken over; else all belongs to the caller */
    UNPACK_DIGEST_ONLY =
        1 << 1, /* files may be left out (proto/digest-context.h); else nothing says that one is */
};

/* Reads `in` to its end into the folder `dir`, which is empty. On failure it may hold anything. */
int unpack_layer(int in, int dir, unsigned flags, struct unpack_stats *ret, struct err *err);

/* The name of an entry, without "./" and slashes at its end; "" is the folder itself. For tests. */
int unpack_name(const char *name, char ret[static UNPACK_PATH_MAX], struct err *err);

/* What unpacking and packing (image/archive/pack.h) share: a name below `dir`, opened without
 * following a link; and which attributes a layer keeps. */
int unpack_open(int dir, const char *path, uint64_t flags);
bool unpack_keeps_xattr(const char *name);

/*
 * Packs a layer's folder as the tar stream that images carry; the reverse of unpack.h. The same
 * folder gives the same bytes each time, on every machine: names are sorted by their bytes, times
 * are whole seconds, and user names are left out. Whiteouts of overlayfs become those of archives,
 * hard links stay links, and attributes `user.*` are kept. Sockets, FIFOs and devices are dropped.
 *
 * The owners in the archive are those that the caller sees, so packing runs in a child that has the
 * layer's ids (image/archive/confined.h).
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

struct pack_stats {
    uint64_t entries;
    uint64_t dropped;
};

int pack_layer(int dir, int out, struct pack_stats *ret, struct err *err);

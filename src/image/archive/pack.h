/*
 * The way back of unpack.h: a layer's folder as the tar stream that images carry. The same folder
 * gives the same bytes each time, on every machine: names in the order of their bytes, times in
 * seconds, no names of users. Overlayfs's whiteouts become those of archives, hard links stay
 * links, attributes `user.*` travel; sockets, FIFOs and devices do not.
 *
 * Owners are what the caller sees: in a child that has the layer's ids (image/archive/confined.h).
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

struct pack_stats {
    uint64_t entries;
    uint64_t dropped;
};

int pack_layer(int dir, int out, struct pack_stats *ret, struct err *err);

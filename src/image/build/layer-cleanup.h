/*
 * What a step has left in its layer and no layer holds: sockets, FIFOs, and the notes that
 * overlayfs keeps for an upper layer, which would mean something else in a lower one. Runs in a
 * confined child.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

/* *ret: bytes of the files that are left. */
int layer_cleanup(int dir, uint64_t *ret, struct err *err);

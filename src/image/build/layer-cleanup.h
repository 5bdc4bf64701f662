/*
 * Removes from a step's layer what image layers do not hold: sockets, FIFOs, and the attributes
 * that overlayfs sets in an upper layer, which have another meaning in a lower one. Runs in a
 * confined child.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

/* *ret: bytes of the files that stay. */
int layer_cleanup(int dir, uint64_t *ret, struct err *err);

/*
 * Decompresses a stream (gzip, zstd, xz, or plain). Runs in a confined child, because the bytes are
 * untrusted.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

/* A part of a file. size UINT64_MAX: a stream, read from its current position to its end. */
struct decompress_range {
    int fd;
    uint64_t at, size;
};

/* Refuses a result of more than `max` bytes, or of more than a thousand times the input. */
int decompress_stream(const struct decompress_range *in, int out, uint64_t max, struct err *err);

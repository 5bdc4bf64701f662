/*
 * Streams that may be compressed (gzip, zstd, xz, or not at all), made plain. Runs in a confined
 * child: the bytes are hostile.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

/* What of a file is to be read; `size` UINT64_MAX: a stream, to its end, from where it stands. */
struct decompress_range {
    int fd;
    uint64_t at, size;
};

/* More bytes than `max` are refused, and more than a thousand times what went in. */
int decompress_stream(const struct decompress_range *in, int out, uint64_t max, struct err *err);

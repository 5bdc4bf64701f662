/*
 * The frames of a hijacked stream without a terminal: one byte stream number, three zero bytes,
 * length in four bytes (big-endian), payload. Incremental and allocation-free, whatever the cuts.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum { DOCKER_STDIN, DOCKER_STDOUT, DOCKER_STDERR };

struct docker_demux {
    unsigned char head[8];
    size_t have;   /* bytes of the head */
    uint32_t left; /* payload bytes still to come */
};
#define DOCKER_DEMUX_INIT                                                                          \
    {                                                                                              \
        .have = 0                                                                                  \
    }

/*
 * Consumes *used bytes of data, of which data[*off .. +*n) are payload of *stream (at most one run
 * a call; *n may be 0). Call until *used is 0. -ERR_INVALID: that is no such stream.
 */
int docker_demux_next(struct docker_demux *d, const char *data, size_t len, size_t *used,
                      int *stream, size_t *off, size_t *n, struct err *err);
/* Whether the stream may end here: not within a frame. */
bool docker_demux_complete(const struct docker_demux *d);

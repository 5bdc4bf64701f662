/*
 * Parses the frames of a hijacked stream without a terminal: one byte stream number, three zero
 * bytes, the length in four bytes (big-endian), the payload. It is incremental, accepts input cut
 * at any place, and allocates nothing.
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
    uint32_t left; /* payload bytes that are missing */
};
#define DOCKER_DEMUX_INIT                                                                          \
    {                                                                                              \
        .have = 0                                                                                  \
    }

/*
 * Consumes *used bytes of data. Of these, the *n bytes at data[*off] are payload of *stream (*n may
 * be 0). Call it until *used is 0. -ERR_INVALID: the data is not such a stream.
 */
int docker_demux_next(struct docker_demux *d, const char *data, size_t len, size_t *used,
                      int *stream, size_t *off, size_t *n, struct err *err);
/* Whether the stream may end here, that is, not within a frame. */
bool docker_demux_complete(const struct docker_demux *d);

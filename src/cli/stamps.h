/*
 * When the output of an exec was written: for `logs --since` and `logs --timestamps`.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "cli/cli.h"
#include "lib/base/buf.h"

enum { STAMPS_STREAMS = 2, STAMPS_GROWTH = 32 }; /* a stamp for each byte, if all are newlines */

struct stamps {
    struct stamps_stream {
        json_t *marks;         /* owned: [[offset, milliseconds], …] */
        uint64_t known;        /* length of the stream when the marks were read */
        size_t at;             /* the mark of the last stamp: offsets only grow */
        bool in_line;          /* the next byte continues a line */
    } streams[STAMPS_STREAMS]; /* stdout, stderr */
    uint64_t started;          /* microseconds since the epoch */
};

/* exec: the answer for a single exec of the sandbox. */
int stamps_load(struct cli *cli, const char *sandbox, const json_t *exec, struct stamps *ret,
                struct err *err);
void stamps_done(struct stamps *s);
#define _cleanup_stamps_ __attribute__((cleanup(stamps_done)))

/* The offset of the first byte of stream 0 or 1 that was written at this time or later. */
uint64_t stamps_offset(const struct stamps *s, int stream, uint64_t usec);
/*
 * Adds the bytes at this offset to `out`, with a time before each line. Bytes that were written
 * after stamps_load() get the time of this call. Fails only if `out` is full.
 */
int stamps_add(struct stamps *s, int stream, uint64_t offset, const char *data, size_t len,
               struct buf *out);

/* "10m" (so long ago) or "2026-11-19T10:00:00Z" (RFC 3339), to microseconds since the epoch. */
int stamps_parse(const char *text, uint64_t *ret_usec, struct err *err);

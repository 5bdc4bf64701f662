/*
 * Renders pieces of a command's output: escaped for a terminal, because a sandbox must not control
 * the user's terminal, or as lines of JSON. Raw output needs no rendering.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"

enum render_mode { RENDER_RAW, RENDER_ESCAPED, RENDER_JSON };

/* State of escaping one stream: the first bytes of a character that the end of a piece cut. */
struct render_state {
    char tail[4];
    size_t tail_len;
};

/* A rendered piece is less than this many times as long. */
enum { RENDER_GROWTH = 8 };

/* All functions append to *ret and return -ERR_LIMIT when it is full. */
int render_escaped(struct render_state *st, const char *data, size_t len,
                   struct buf *ret) _must_check_;
int render_finish(struct render_state *st, struct buf *ret) _must_check_;
/* {"type":"stdout","offset":N,"data":"…"}, with "base64" instead of "data" for bytes that are not
 * UTF-8. */
int render_json(const char *type, uint64_t offset, const char *data, size_t len,
                struct buf *ret) _must_check_;
int render_line(const json_t *doc, struct buf *ret) _must_check_;

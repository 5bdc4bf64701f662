/*
 * How a piece of a command's output is shown: as it is, escaped for a terminal (SECURITY E7), or as
 * lines of JSON. The first needs no copy and never comes here.
 */
#pragma once

#include <jansson.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"

enum render_mode { RENDER_RAW, RENDER_ESCAPED, RENDER_JSON };

/* Escaping keeps back a character cut in two by the end of a piece; one of these per stream. */
struct render_state {
    char tail[4];
    size_t tail_len;
};

/* A piece grows by less than this when it is rendered. */
enum { RENDER_GROWTH = 8 };

/* All append to *ret; -ERR_LIMIT past its maximum. */
int render_escaped(struct render_state *st, const char *data, size_t len,
                   struct buf *ret) _must_check_;
int render_finish(struct render_state *st, struct buf *ret) _must_check_;
/* {"type":"stdout","offset":N,"data":"…"}, or "base64" instead of "data" when it is not UTF-8. */
int render_json(const char *type, uint64_t offset, const char *data, size_t len,
                struct buf *ret) _must_check_;
int render_line(const json_t *doc, struct buf *ret) _must_check_;

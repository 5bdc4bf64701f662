/*
 * Lines of a Dockerfile: continuation lines joined to one, comments between them left out, and for
 * each byte of the result the place it came from.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

enum { LINE_MAX_BYTES = 65535 }; /* of one physical line, as BuildKit's scanner has it */

struct line_part {
    size_t off; /* from here on in the joined text … */
    size_t src; /* … bytes stand here in the source */
};

struct dockerfile_line {
    char *text; /* owned, NUL-terminated; may hold NUL bytes */
    size_t len;
    struct line_part *parts; /* owned, ascending */
    size_t n_parts;
    size_t at, end; /* in the source; end is behind its last line's newline */
    size_t lead;    /* where the comments right before it begin */
    bool gap;       /* there is an empty line among the continuation lines … */
    size_t gap_at;  /* … here */
};

struct line_reader {
    const char *text; /* borrowed */
    size_t len, pos;
    char escape;
    bool directives_done;
    char *syntax, *check; /* owned until taken */
};

void line_reader_init(struct line_reader *r, const char *text, size_t len);
void line_reader_done(struct line_reader *r);

/* 1 and the next line that is neither empty nor a comment; 0 at the end. On failure *ret_at is the
 * place. */
int line_read(struct line_reader *r, struct dockerfile_line *ret, size_t *ret_at, struct err *err);
/* The next physical line with its newline, as heredocs need it; 0 at the end. */
int line_read_raw(struct line_reader *r, size_t *ret_start, size_t *ret_end, size_t *ret_at,
                  struct err *err);

void line_done(struct dockerfile_line *l);
/* Where the byte at `off` stands in the source; for off == len, the place behind the last one. */
size_t line_source(const struct dockerfile_line *l, size_t off);
/* A line of its own from `off` on. */
void line_tail(const struct dockerfile_line *l, size_t off, struct dockerfile_line *ret);

/*
 * Logical lines of a Dockerfile: joins continuation lines, drops comments between them, and maps
 * each byte of the result to its offset in the source.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

enum { LINE_MAX_BYTES = 65535 }; /* of one physical line: the limit of BuildKit */

struct line_part {
    size_t off; /* the bytes from this offset of the joined text … */
    size_t src; /* … come from this offset of the source */
};

struct dockerfile_line {
    char *text; /* owned, NUL-terminated; can contain NUL bytes */
    size_t len;
    struct line_part *parts; /* owned, ascending */
    size_t n_parts;
    size_t at, end; /* in the source; end is after the last newline */
    size_t lead;    /* start of the comments right before it */
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

/* 1: *ret is the next line that is neither empty nor a comment; 0: end of the file. On failure
 * *ret_at is the offset of the error. */
int line_read(struct line_reader *r, struct dockerfile_line *ret, size_t *ret_at, struct err *err);
/* 1: the next physical line with its newline, for heredocs; 0: end of the file. */
int line_read_raw(struct line_reader *r, size_t *ret_start, size_t *ret_end, size_t *ret_at,
                  struct err *err);

void line_done(struct dockerfile_line *l);
/* The source offset of the byte at `off`. For off == len, the offset after the last byte. */
size_t line_source(const struct dockerfile_line *l, size_t off);
/* A copy of the line from `off` on. */
void line_tail(const struct dockerfile_line *l, size_t off, struct dockerfile_line *ret);

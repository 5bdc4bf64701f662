/*
 * A byte buffer that grows up to a hard maximum given at init, and is always NUL-terminated once it
 * holds anything. Appending past the maximum fails with -ERR_LIMIT and changes nothing; the caller
 * writes the message of the error.
 *
 * Consuming from the front (buf_consume) is cheap: the head moves, and space is reclaimed on the
 * next append.
 */
#pragma once

#include <stdarg.h>
#include <stddef.h>

#include "lib/base/macro.h"

struct buf {
    char *mem;  /* owned allocation */
    size_t off; /* first byte in use */
    size_t len; /* bytes in use, without the NUL */
    size_t cap; /* size of mem */
    size_t max; /* len never exceeds it */
};

#define BUF_INIT(max_)                                                                             \
    {                                                                                              \
        .max = (max_)                                                                              \
    }
#define _cleanup_buf_ __attribute__((cleanup(buf_done)))
#define _cleanup_wipe_ __attribute__((cleanup(buf_wipe)))

void buf_done(struct buf *b);
void buf_wipe(struct buf *b);  /* like buf_done(), and overwrites the bytes */
void buf_clear(struct buf *b); /* keeps the memory */

static inline char *buf_data(const struct buf *b)
{
    return b->mem ? b->mem + b->off : (char *)"";
}

int buf_append(struct buf *b, const void *data, size_t len) _must_check_;
int buf_append_str(struct buf *b, const char *s) _must_check_;
int buf_append_c(struct buf *b, char c) _must_check_;
int buf_appendf(struct buf *b, const char *fmt, ...) _printf_(2, 3) _must_check_;
int buf_appendv(struct buf *b, const char *fmt, va_list ap) _printf_(2, 0) _must_check_;

/* Reserves room for n more bytes and returns where to write them; then call buf_commit(). NULL: the
 * maximum would be exceeded. */
char *buf_reserve(struct buf *b, size_t n) _must_check_;
void buf_commit(struct buf *b, size_t n);

void buf_consume(struct buf *b, size_t n);  /* drops n bytes from the front */
void buf_truncate(struct buf *b, size_t n); /* keeps the first n bytes */

/* Hands the text over (NUL-terminated, malloc'd, never NULL) and leaves the buffer empty. */
char *buf_steal(struct buf *b) _nonnull_;

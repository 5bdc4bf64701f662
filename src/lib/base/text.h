/*
 * Makes foreign text safe to show. Hostile code chooses bytes in names, messages and log lines:
 * terminal escapes, bidirectional overrides, invalid UTF-8.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/buf.h"

/* Appends with C0, C1, DEL, invalid UTF-8 and bidi controls as \xNN / \u{NNNN}; printable UTF-8
 * stays. */
int text_escape(struct buf *b, const char *s, size_t len) _must_check_;

/* The number of bytes at the start that are the same inside of a JSON string: usually all. */
size_t text_plain_span(const char *s, size_t len);
/* Appends as the inside of a JSON string; invalid UTF-8 becomes U+FFFD. */
int text_escape_json(struct buf *b, const char *s) _must_check_;
int text_escape_json_n(struct buf *b, const char *s, size_t len) _must_check_; /* may hold NUL */

/* Length in bytes (1-4) of the well-formed UTF-8 character at s, or 0; *ret is its code point. */
size_t text_utf8_next(const char *s, size_t len, unsigned *ret);
bool text_is_utf8(const char *s, size_t len); /* may hold NUL */

/* The value of a hexadecimal digit, or -1. */
int text_hex_digit(char c);

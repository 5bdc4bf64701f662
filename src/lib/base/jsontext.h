/*
 * Checks that a text is well-formed JSON (RFC 8259) without building a document, for texts that are
 * passed on unchanged. It allocates nothing, keeps the digits of numbers, and limits the nesting.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

enum { JSON_TEXT_DEPTH_MAX = 128 };

enum json_text_kind { JSON_TEXT_BAD, JSON_TEXT_OBJECT, JSON_TEXT_OTHER };

/*
 * Whether `len` bytes are one object, one other value, or neither. Strings must be UTF-8 without
 * control characters. A lone surrogate (\ud800) passes, because container engines write them.
 */
enum json_text_kind json_text_kind(const char *s, size_t len);

/*
 * Whether a text is an object with a member `key` that is one of these strings (ASCII, ended by
 * NULL). Readers differ in what they make of a key that is escaped, is in upper case or comes
 * twice, so each such key counts. Give `key` in lower case.
 */
bool json_text_has_member(const char *s, size_t len, const char *key, const char *const *values);

/* Removes the white space of one value in place, so that it fits on one line. *len is the length
 * before and after. The error names the byte that is wrong. */
int json_text_compact(char *s, size_t *len, struct err *err);

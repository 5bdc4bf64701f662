/*
 * JSON as text: is it well-formed (RFC 8259), without building anything of it. For bytes that are
 * passed on as they are: nothing is allocated, numbers keep their digits, and hostile depth ends at
 * a limit instead of a stack.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

enum { JSON_TEXT_DEPTH_MAX = 128 };

enum json_text_kind { JSON_TEXT_BAD, JSON_TEXT_OBJECT, JSON_TEXT_OTHER };

/*
 * What `len` bytes are: one whole object, one whole other value, or neither. Strings must be UTF-8
 * without control characters; a lone surrogate (\ud800) passes, as every engine writes them.
 */
enum json_text_kind json_text_kind(const char *s, size_t len);

/* One value of any kind without the white space between its parts, so that it is one line; *len is
 * set to what is left. Failure says at which byte. */
int json_text_compact(char *s, size_t *len, struct err *err);

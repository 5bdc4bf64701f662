/*
 * Base64 (RFC 4648, section 4). Of foreign text, padding is required and blanks are refused.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/err.h"

/* Appends the text of the bytes to b. */
int base64_encode(struct buf *b, const void *data, size_t len) _must_check_;
/* Appends the decoded bytes to b. */
int base64_decode(struct buf *b, const char *text, size_t len, struct err *err);

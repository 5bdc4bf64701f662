/*
 * Decodes base64 (RFC 4648, section 4) of foreign text. Padding is required; blanks are refused.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/err.h"

/* Appends the decoded bytes to b. */
int base64_decode(struct buf *b, const char *text, size_t len, struct err *err);

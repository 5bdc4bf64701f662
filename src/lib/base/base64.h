/*
 * Base64 (RFC 4648, section 4). The decoder reads foreign text: padding is required, and blanks are
 * refused.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/err.h"

/* Appends the decoded bytes to b. */
int base64_decode(struct buf *b, const char *text, size_t len, struct err *err);
char *base64_encode(const void *data, size_t len); /* new */

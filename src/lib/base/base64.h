/*
 * Base64 (RFC 4648, section 4) of foreign text: padding is needed, nothing else is skipped.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/err.h"

/* Appends the bytes. */
int base64_decode(struct buf *b, const char *text, size_t len, struct err *err);

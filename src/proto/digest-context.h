/*
 * Digest-only build contexts: a tar whose file entries have no bytes, but the digest of their
 * content as an extended attribute. That is enough to find a step in the build cache. For a step
 * that is not there, the builder names the digests that it needs, and the client sends the context
 * again with the content of these files.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/blake2b.h"

#define DIGEST_CONTEXT_TYPE "application/vnd.ripcord.thin-context"
#define DIGEST_CONTEXT_XATTR "user.ripcord.content"
enum { DIGEST_CONTEXT_VALUE_MAX = 20 + 1 + BLAKE2B_HEX };

/* Formats the attribute's value, "SIZE DIGITS". */
void digest_context_format(uint64_t size, const char *hex,
                           char ret[static DIGEST_CONTEXT_VALUE_MAX]);
/* The same for the rest of a file, which is read in pieces of `len` bytes. 0 or -errno. */
int digest_context_read(int fd, char *piece, size_t len, char ret[static DIGEST_CONTEXT_VALUE_MAX]);
/* The digits of a value, or NULL if it is not valid. Borrowed from the value, which is
 * NUL-terminated. */
const char *digest_context_digits(const char *value);

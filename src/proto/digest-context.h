/*
 * Thin contexts of builds: a tar of which files are left out but for what they hold: such an entry
 * has no bytes, and the digest of those that it would have had as an extended attribute. That is
 * enough to find a step that has been done before; for one that has not, the builder names the
 * digests that it wants, and is sent the context again with these.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/blake2b.h"

#define DIGEST_CONTEXT_TYPE "application/vnd.ripcord.thin-context"
#define DIGEST_CONTEXT_XATTR "user.ripcord.content"
enum { DIGEST_CONTEXT_VALUE_MAX = 20 + 1 + BLAKE2B_HEX };

/* "SIZE DIGITS". */
void digest_context_format(uint64_t size, const char *hex,
                           char ret[static DIGEST_CONTEXT_VALUE_MAX]);
/* The same of what is left to read of a file, in pieces of `len` bytes. 0 or -errno. */
int digest_context_read(int fd, char *piece, size_t len, char ret[static DIGEST_CONTEXT_VALUE_MAX]);
/* Its digits, or NULL when it is none; borrowed of the value, which ends with a NUL. */
const char *digest_context_digits(const char *value);

/* SHA-256 digests in the form of images: "sha256:" and 64 hexadecimal digits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { DIGEST_LEN = 7 + 64, DIGEST_MAX = DIGEST_LEN + 1 };

/* True only for a complete lower-case digest: its digits are safe as a part of a path. */
bool digest_is_valid(const char *s);
/* The 64 digits of a valid digest; borrowed. */
const char *digest_hex(const char *digest);

/* For a process that computes few digests, before the first one: keeps libcrypto from reading its
 * configuration, which takes longer than the digests. */
void digest_begin_quickly(void);

struct digest_state;
struct digest_state *digest_begin(void);
void digest_add(struct digest_state *d, const void *data, size_t len);
/* Frees the state; ret may be NULL. */
void digest_end(struct digest_state *d, char ret[DIGEST_MAX]);
void digest_of(const void *data, size_t len, char ret[static DIGEST_MAX]);

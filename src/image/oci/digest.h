/* SHA-256 as images are named by it: "sha256:" and 64 hexadecimal digits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

enum { DIGEST_LEN = 7 + 64, DIGEST_MAX = DIGEST_LEN + 1 };

/* Lower-case and whole: safe as a part of a path behind the colon. */
bool digest_is_valid(const char *s);
/* The 64 digits of a valid one. */
const char *digest_hex(const char *digest);

/* Before the first digest of a process that makes few: without the library's configuration, which
 * is for other things and takes longer to read than they take. */
void digest_begin_quickly(void);

struct digest_state;
struct digest_state *digest_begin(void);
void digest_add(struct digest_state *d, const void *data, size_t len);
/* Frees the state; ret may be NULL. */
void digest_end(struct digest_state *d, char ret[DIGEST_MAX]);
void digest_of(const void *data, size_t len, char ret[static DIGEST_MAX]);

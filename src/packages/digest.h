/*
 * Digests as indexes give them. PyPI: sha256 in hexadecimal. npm: Subresource Integrity ("sha512-"
 * and base64, several with blanks between), for old versions a sha1 alone.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

/* In order of strength. */
enum digest_algo { DIGEST_SHA1, DIGEST_SHA256, DIGEST_SHA384, DIGEST_SHA512, DIGEST_MAX };

enum { DIGEST_HEX_MAX = 128, DIGEST_KEY_MAX = 8 + DIGEST_HEX_MAX };

struct digest {
    enum digest_algo algo;
    char hex[DIGEST_HEX_MAX + 1]; /* lower case */
};

const char *digest_algo_name(enum digest_algo algo);
bool digest_from_hex(enum digest_algo algo, const char *hex, struct digest *ret);
/* "sha512", by name. */
bool digest_from_parts(const char *algo, const char *hex, struct digest *ret);
/* Takes the strongest digest that it can read. */
bool digest_from_sri(const char *text, struct digest *ret);
bool digest_equal(const struct digest *a, const struct digest *b);
/* "sha256:<hex>", as in events and `cache show`. */
void digest_key(const struct digest *d, char ret[static DIGEST_KEY_MAX]);

struct hasher;
struct hasher *hasher_new(enum digest_algo algo);
void hasher_free(struct hasher *h); /* NULL is fine */
void hasher_add(struct hasher *h, const void *data, size_t len);
void hasher_end(struct hasher *h, struct digest *ret); /* once */
/* From the descriptor's beginning to its end; false when reading failed. */
bool digest_of_file(int fd, enum digest_algo algo, struct digest *ret);

/*
 * BLAKE2b with 32 bytes of output (RFC 7693), for programs without a digest library. The command
 * line tool uses it to find the files that a builder already has.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { BLAKE2B_BLOCK = 128, BLAKE2B_LEN = 32, BLAKE2B_HEX = 2 * BLAKE2B_LEN + 1 };

struct blake2b {
    uint64_t h[8], bytes;
    uint8_t block[BLAKE2B_BLOCK]; /* bytes not hashed yet: the last block is handled differently */
    size_t len;
};

void blake2b_init(struct blake2b *b);
void blake2b_add(struct blake2b *b, const void *data, size_t len);
/* Writes the digest in lower-case hexadecimal, with a NUL. */
void blake2b_end(struct blake2b *b, char ret[static BLAKE2B_HEX]);

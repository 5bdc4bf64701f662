/*
 * BLAKE2b with 32 bytes of output (RFC 7693), for programs that have no library for digests: the
 * command line tells the builder by it what it need not be sent.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum { BLAKE2B_BLOCK = 128, BLAKE2B_LEN = 32, BLAKE2B_HEX = 2 * BLAKE2B_LEN + 1 };

struct blake2b {
    uint64_t h[8], bytes;
    uint8_t block[BLAKE2B_BLOCK]; /* what is not counted in yet: the last block is another's case */
    size_t len;
};

void blake2b_init(struct blake2b *b);
void blake2b_add(struct blake2b *b, const void *data, size_t len);
/* In lower-case digits, with a NUL. */
void blake2b_end(struct blake2b *b, char ret[static BLAKE2B_HEX]);

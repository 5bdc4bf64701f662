#include "lib/base/blake2b.h"

#include <endian.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "lib/base/macro.h"

static const uint64_t iv[8] = {
    0x6a09e667f3bcc908, 0xbb67ae8584caa73b, 0x3c6ef372fe94f82b, 0xa54ff53a5f1d36f1,
    0x510e527fade682d1, 0x9b05688c2b3e6c1f, 0x1f83d9abfb41bd6b, 0x5be0cd19137e2179,
};

/* clang-format off */
static const uint8_t sigma[12][16] = {
    { 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15},
    {14, 10,  4,  8,  9, 15, 13,  6,  1, 12,  0,  2, 11,  7,  5,  3},
    {11,  8, 12,  0,  5,  2, 15, 13, 10, 14,  3,  6,  7,  1,  9,  4},
    { 7,  9,  3,  1, 13, 12, 11, 14,  2,  6,  5, 10,  4,  0, 15,  8},
    { 9,  0,  5,  7,  2,  4, 10, 15, 14,  1, 11, 12,  6,  8,  3, 13},
    { 2, 12,  6, 10,  0, 11,  8,  3,  4, 13,  7,  5, 15, 14,  1,  9},
    {12,  5,  1, 15, 14, 13,  4, 10,  0,  7,  6,  3,  9,  2,  8, 11},
    {13, 11,  7, 14, 12,  1,  3,  9,  5,  0, 15,  4,  8,  6,  2, 10},
    { 6, 15, 14,  9, 11,  3,  0,  8, 12,  2, 13,  7,  1,  4, 10,  5},
    {10,  2,  8,  4,  7,  6,  1,  5, 15, 11,  9, 14,  3, 12, 13,  0},
    { 0,  1,  2,  3,  4,  5,  6,  7,  8,  9, 10, 11, 12, 13, 14, 15},
    {14, 10,  4,  8,  9, 15, 13,  6,  1, 12,  0,  2, 11,  7,  5,  3},
};
/* clang-format on */

static inline uint64_t blake2b_turn(uint64_t x, unsigned n)
{
    return x >> n | x << (64 - n);
}

static inline void blake2b_mix(uint64_t v[static 16], const uint8_t at[static 4], uint64_t x,
                               uint64_t y)
{
    uint64_t a = v[at[0]], b = v[at[1]], c = v[at[2]], d = v[at[3]];

    a += b + x;
    d = blake2b_turn(d ^ a, 32);
    c += d;
    b = blake2b_turn(b ^ c, 24);
    a += b + y;
    d = blake2b_turn(d ^ a, 16);
    c += d;
    b = blake2b_turn(b ^ c, 63);
    v[at[0]] = a;
    v[at[1]] = b;
    v[at[2]] = c;
    v[at[3]] = d;
}

/* The compiler unrolls the rounds: with loops it is half as fast. */
static void blake2b_compress(struct blake2b *b, const uint8_t *block, bool last)
{
    static const uint8_t at[8][4] = {{0, 4, 8, 12},  {1, 5, 9, 13},  {2, 6, 10, 14}, {3, 7, 11, 15},
                                     {0, 5, 10, 15}, {1, 6, 11, 12}, {2, 7, 8, 13},  {3, 4, 9, 14}};
    uint64_t m[16], v[16];

    memcpy(m, block, sizeof(m));
    for (size_t i = 0; i < 16; i++)
        m[i] = le64toh(m[i]);
    memcpy(v, b->h, sizeof(b->h));
    memcpy(v + 8, iv, sizeof(iv));
    v[12] ^= b->bytes;
    v[14] ^= last ? ~UINT64_C(0) : 0;
#pragma GCC unroll 12
    for (size_t round = 0; round < 12; round++)
#pragma GCC unroll 8
        for (size_t i = 0; i < 8; i++)
            blake2b_mix(v, at[i], m[sigma[round][2 * i]], m[sigma[round][2 * i + 1]]);
    for (size_t i = 0; i < 8; i++)
        b->h[i] ^= v[i] ^ v[i + 8];
}

void blake2b_init(struct blake2b *b)
{
    *b = (struct blake2b){0};
    memcpy(b->h, iv, sizeof(iv));
    b->h[0] ^= 0x01010000 | BLAKE2B_LEN; /* no key, no tree */
}

void blake2b_add(struct blake2b *b, const void *data, size_t len)
{
    const uint8_t *p = data;

    while (len) {
        size_t n = MIN(len, sizeof(b->block) - b->len);

        if (b->len == sizeof(b->block)) {
            b->bytes += sizeof(b->block);
            blake2b_compress(b, b->block, false);
            b->len = 0;
            continue;
        }
        memcpy(b->block + b->len, p, n);
        b->len += n;
        p += n;
        len -= n;
    }
}

void blake2b_end(struct blake2b *b, char ret[static BLAKE2B_HEX])
{
    b->bytes += b->len;
    memset(b->block + b->len, 0, sizeof(b->block) - b->len);
    blake2b_compress(b, b->block, true);
    for (size_t i = 0; i < BLAKE2B_LEN; i++)
        snprintf(ret + 2 * i, 3, "%02x", (unsigned)(b->h[i / 8] >> (8 * (i % 8)) & 0xff));
}

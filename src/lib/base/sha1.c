#include "lib/base/sha1.h"

#include <endian.h>
#include <string.h>

enum { SHA1_BLOCK = 64, SHA1_LENGTH_AT = SHA1_BLOCK - 8 };

static inline uint32_t sha1_turn(uint32_t x, unsigned n)
{
    return x << n | x >> (32 - n);
}

/* The function and the constant of one of the 80 rounds. */
static uint32_t sha1_mix(size_t round, uint32_t b, uint32_t c, uint32_t d)
{
    if (round < 20)
        return ((b & c) | (~b & d)) + 0x5a827999;
    if (round < 40)
        return (b ^ c ^ d) + 0x6ed9eba1;
    if (round < 60)
        return ((b & c) | (b & d) | (c & d)) + 0x8f1bbcdc;
    return (b ^ c ^ d) + 0xca62c1d6;
}

static void sha1_compress(uint32_t h[static 5], const uint8_t *block)
{
    uint32_t w[80], v[5];

    memcpy(w, block, SHA1_BLOCK);
    for (size_t i = 0; i < 16; i++)
        w[i] = be32toh(w[i]);
    for (size_t i = 16; i < 80; i++)
        w[i] = sha1_turn(w[i - 3] ^ w[i - 8] ^ w[i - 14] ^ w[i - 16], 1);
    memcpy(v, h, sizeof(v));
    for (size_t i = 0; i < 80; i++) {
        uint32_t next = sha1_turn(v[0], 5) + sha1_mix(i, v[1], v[2], v[3]) + v[4] + w[i];

        v[4] = v[3];
        v[3] = v[2];
        v[2] = sha1_turn(v[1], 30);
        v[1] = v[0];
        v[0] = next;
    }
    for (size_t i = 0; i < 5; i++)
        h[i] += v[i];
}

void sha1_digest(const void *data, size_t len, uint8_t ret[static SHA1_LEN])
{
    uint32_t h[5] = {0x67452301, 0xefcdab89, 0x98badcfe, 0x10325476, 0xc3d2e1f0};
    uint64_t bits = htobe64((uint64_t)len * 8);
    uint8_t last[2 * SHA1_BLOCK] = {0};
    const uint8_t *p = data;
    size_t left = len, blocks;

    for (; left >= SHA1_BLOCK; left -= SHA1_BLOCK, p += SHA1_BLOCK)
        sha1_compress(h, p);
    if (left)
        memcpy(last, p, left);
    last[left] = 0x80;
    blocks = left < SHA1_LENGTH_AT ? 1 : 2;
    memcpy(last + blocks * SHA1_BLOCK - sizeof(bits), &bits, sizeof(bits));
    for (size_t i = 0; i < blocks; i++)
        sha1_compress(h, last + i * SHA1_BLOCK);
    for (size_t i = 0; i < 5; i++)
        h[i] = htobe32(h[i]);
    memcpy(ret, h, SHA1_LEN);
}

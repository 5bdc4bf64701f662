/*
 * Pseudo-random bytes that writer and reader can both generate. *state is 0 at the start. Every
 * piece except the last has a multiple of 8 bytes.
 */
#pragma once

#include <stdint.h>
#include <string.h>

#include "lib/base/macro.h"

static inline void prey_noise(uint64_t *state, char *p, size_t len)
{
    for (size_t at = 0; at < len; at += sizeof(uint64_t)) {
        uint64_t v = (*state += UINT64_C(0x9e3779b97f4a7c15)); /* splitmix64 */

        v = (v ^ v >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
        v = (v ^ v >> 27) * UINT64_C(0x94d049bb133111eb);
        v ^= v >> 31;
        memcpy(p + at, &v, MIN(sizeof(v), len - at));
    }
}

/*
 * What every fuzz target includes. A target is one LLVMFuzzerTestOneInput(): libFuzzer calls it
 * under `./dev fuzz`, replay.c calls it for each saved file in the ordinary tests. A wrong answer
 * is as much a finding as a crash: MUST() ends the process.
 */
#pragma once

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: MUST(%s) does not hold\n", __FILE__, __LINE__, #cond);         \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* A copy of exactly that size on the heap, so that AddressSanitizer sees a read of one byte too
 * many. */
static inline char *fuzz_copy(const uint8_t *data, size_t size)
{
    char *copy = calloc(1, size ? size : 1);

    MUST(copy);
    if (size)
        memcpy(copy, data, size);
    return copy;
}

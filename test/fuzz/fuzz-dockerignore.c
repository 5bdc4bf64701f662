/*
 * Matches a path (the first line of the input) with the patterns of a .dockerignore (the rest).
 */
#include "fuzz.h"
#include "image/dockerfile/ignore.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *copy = fuzz_copy(data, size), *newline = memchr(copy, '\n', size);
    struct ignore *ig = NULL;

    if (newline) {
        *newline = 0;
        if (ignore_parse(newline + 1, size - (size_t)(newline + 1 - copy), &ig, NULL) >= 0)
            (void)!ignore_matches(ig, copy);
        ignore_free(ig);
    }
    free(copy);
    return 0;
}

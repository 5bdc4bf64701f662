/*
 * The field Range of a request for a file.
 */
#pragma once

#include <stdint.h>

enum range_kind {
    RANGE_ALL,  /* none, several, or none that we know: the whole file is a right answer */
    RANGE_PART, /* *first and *count are set, count > 0 */
    RANGE_NONE, /* nothing of it is in a file of this size: 416 */
};

/* text: NULL when the request has none. */
enum range_kind range_parse(const char *text, uint64_t size, uint64_t *first, uint64_t *count);

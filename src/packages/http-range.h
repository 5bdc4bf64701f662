/*
 * Parses the Range header field of a request for a file.
 */
#pragma once

#include <stdint.h>

enum range_kind {
    RANGE_ALL,  /* no range, several, or a malformed one: send the whole file */
    RANGE_PART, /* *first and *count are set, count > 0 */
    RANGE_NONE, /* the range is outside the file: status 416 */
};

/* text: NULL when the request has no Range field. */
enum range_kind range_parse(const char *text, uint64_t size, uint64_t *first, uint64_t *count);

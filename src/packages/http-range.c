#include "packages/http-range.h"

#include <string.h>
#include <strings.h>

#include "lib/base/macro.h"

#define UNIT "bytes="

/* Reads the digits at *at and advances it. Returns -1 without a digit or on overflow. */
static int http_range_take_number(const char **at, uint64_t *ret)
{
    const char *p = *at;
    uint64_t v = 0;

    for (; *p >= '0' && *p <= '9'; p++)
        if (__builtin_mul_overflow(v, 10, &v) || __builtin_add_overflow(v, *p - '0', &v))
            return -1;
    if (p == *at)
        return -1;
    *at = p;
    *ret = v;
    return 0;
}

static enum range_kind http_range_the_last(const char *p, uint64_t size, uint64_t *first,
                                           uint64_t *count)
{
    uint64_t n;

    if (http_range_take_number(&p, &n) < 0 || *p)
        return RANGE_ALL;
    if (n == 0 || size == 0)
        return RANGE_NONE;
    *count = MIN(n, size);
    *first = size - *count;
    return RANGE_PART;
}

/* RFC 9110, 14.1.2: a server may ignore a range that it does not understand. */
enum range_kind range_parse(const char *text, uint64_t size, uint64_t *first, uint64_t *count)
{
    uint64_t from, to = UINT64_MAX;
    const char *p;

    if (!text || strncasecmp(text, UNIT, strlen(UNIT)) != 0)
        return RANGE_ALL;
    p = text + strlen(UNIT);
    if (*p == '-')
        return http_range_the_last(p + 1, size, first, count);
    if (http_range_take_number(&p, &from) < 0 || *p++ != '-')
        return RANGE_ALL;
    if (*p && (http_range_take_number(&p, &to) < 0 || *p || to < from))
        return RANGE_ALL;
    if (from >= size)
        return RANGE_NONE;
    *first = from;
    *count = MIN(to, size - 1) - from + 1;
    return RANGE_PART;
}

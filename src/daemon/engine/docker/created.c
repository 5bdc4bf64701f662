#include "daemon/engine/docker/created.h"

#include <string.h>

enum { WHOLE_SECONDS = 19 }; /* "2026-11-16T04:36:19" */

static const char *fraction_of(const char *t)
{
    return strlen(t) > WHOLE_SECONDS && t[WHOLE_SECONDS] == '.' ? t + WHOLE_SECONDS + 1 : "";
}

static char digit_at(const char **p)
{
    return **p >= '0' && **p <= '9' ? *(*p)++ : '0';
}

static bool has_digit(const char *p)
{
    return *p >= '0' && *p <= '9';
}

/* <0, 0, >0. One engine writes all its times in one zone. */
static int compare(const char *a, const char *b)
{
    int r = strncmp(a, b, WHOLE_SECONDS);
    const char *fa = fraction_of(a), *fb = fraction_of(b);

    while (r == 0 && (has_digit(fa) || has_digit(fb))) {
        char x = digit_at(&fa), y = digit_at(&fb);

        r = x - y;
    }
    return r;
}

bool created_before(const char *time_a, const char *id_a, const char *time_b, const char *id_b)
{
    int r = compare(time_a, time_b);

    return r ? r < 0 : strcmp(id_a, id_b) < 0;
}

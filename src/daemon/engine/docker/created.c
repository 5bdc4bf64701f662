#include "daemon/engine/docker/created.h"

#include <string.h>

enum { WHOLE_SECONDS = 19 }; /* "2026-11-16T04:36:19" */

static const char *created_fraction_of(const char *t)
{
    return strlen(t) > WHOLE_SECONDS && t[WHOLE_SECONDS] == '.' ? t + WHOLE_SECONDS + 1 : "";
}

static char created_digit_at(const char **p)
{
    return **p >= '0' && **p <= '9' ? *(*p)++ : '0';
}

static bool created_has_digit(const char *p)
{
    return *p >= '0' && *p <= '9';
}

bool created_before(const char *time_a, const char *id_a, const char *time_b, const char *id_b)
{
    const char *fa = created_fraction_of(time_a), *fb = created_fraction_of(time_b);
    int r = strncmp(time_a, time_b, WHOLE_SECONDS);

    /* All times of one engine are in the same time zone. */
    while (r == 0 && (created_has_digit(fa) || created_has_digit(fb)))
        r = created_digit_at(&fa) - created_digit_at(&fb);
    return r ? r < 0 : strcmp(id_a, id_b) < 0;
}

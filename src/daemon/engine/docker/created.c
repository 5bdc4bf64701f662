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

/* Returns <0, 0 or >0. All times of one engine are in the same time zone. */
static int created_compare(const char *a, const char *b)
{
    int r = strncmp(a, b, WHOLE_SECONDS);
    const char *fa = created_fraction_of(a), *fb = created_fraction_of(b);

    while (r == 0 && (created_has_digit(fa) || created_has_digit(fb))) {
        char x = created_digit_at(&fa), y = created_digit_at(&fb);

        r = x - y;
    }
    return r;
}

bool created_before(const char *time_a, const char *id_a, const char *time_b, const char *id_b)
{
    int r = created_compare(time_a, time_b);

    return r ? r < 0 : strcmp(id_a, id_b) < 0;
}

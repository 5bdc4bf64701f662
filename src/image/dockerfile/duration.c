#include "image/dockerfile/duration.h"

#include <ctype.h>
#include <string.h>

#include "lib/base/macro.h"

/* clang-format off */
static const struct {
    const char *name;
    int64_t ns;
} units[] = { /* longer names first: "ms" is not minutes */
    {"ns", 1}, {"us", 1000}, {"\xc2\xb5s", 1000}, {"\xce\xbcs", 1000}, {"ms", 1000000},
    {"s", 1000000000}, {"m", 60000000000}, {"h", 3600000000000},
};
/* clang-format on */

static int64_t duration_unit_of(const char **s)
{
    for (size_t i = 0; i < ARRAY_SIZE(units); i++) {
        size_t n = strlen(units[i].name);

        /* The unit ends at the next digit, so that "1mx" is invalid. */
        if (!strncmp(*s, units[i].name, n) && (!(*s)[n] || strchr(".0123456789", (*s)[n]))) {
            *s += n;
            return units[i].ns;
        }
    }
    return 0;
}

/* Reads one number with its unit; *s moves after it. */
static bool duration_read_part(const char **s, int64_t *total)
{
    double value = 0, scale = 1;
    int64_t unit;
    bool digits = false;

    for (; isdigit((unsigned char)**s); (*s)++, digits = true)
        value = value * 10 + (**s - '0');
    if (**s == '.')
        for ((*s)++; isdigit((unsigned char)**s); (*s)++, digits = true)
            value += (**s - '0') * (scale /= 10);
    unit = digits ? duration_unit_of(s) : 0;
    if (!unit || value * (double)unit + (double)*total >= 9.2e18)
        return false;
    *total += (int64_t)(value * (double)unit + 0.5);
    return true;
}

int duration_parse(const char *s, int64_t *ret_ns, struct err *err)
{
    const char *p = s + (*s == '-' || *s == '+');
    int64_t total = 0;

    if (STREQ(p, "0")) {
        *ret_ns = 0;
        return 0;
    }
    do {
        if (!duration_read_part(&p, &total)) {
            err_set(err, ERR_INVALID, "'%.64s' is not a valid duration", s);
            return err_hint(err, "Write a number with its unit: 30s, 1m30s, 500ms.");
        }
    } while (*p);
    *ret_ns = *s == '-' ? -total : total;
    return 0;
}

#include "lib/base/parse.h"

#include <ctype.h>
#include <signal.h>

enum { NAME_MAX_LEN = 63, USER_ID_MAX = 65535, USER_NAME_MAX = 32, MODE_DIGITS_MAX = 5 };

static const uint64_t usec_per_sec = 1000000;

/* Reads the digits at *p and advances *p. Returns -1 without a digit or on overflow. */
static int base_parse_scan_digits(const char **p, uint64_t *ret)
{
    uint64_t v = 0;

    if (!isdigit((unsigned char)**p))
        return -1;
    for (; isdigit((unsigned char)**p); (*p)++)
        if (__builtin_mul_overflow(v, 10, &v) ||
            __builtin_add_overflow(v, (uint64_t)(**p - '0'), &v))
            return -1;
    *ret = v;
    return 0;
}

/* "N" or "N.F". The unit comes after the number, so the caller multiplies when it has read both. */
struct decimal {
    uint64_t whole;
    uint64_t frac;  /* the digits after the point, as a number */
    uint64_t scale; /* 10 to the power of their count */
};

static int base_parse_scan_decimal(const char **p, struct decimal *ret)
{
    *ret = (struct decimal){.scale = 1};
    if (base_parse_scan_digits(p, &ret->whole) < 0)
        return -1;
    if (**p != '.')
        return 0;
    (*p)++;
    if (!isdigit((unsigned char)**p))
        return -1;
    for (; isdigit((unsigned char)**p); (*p)++) {
        if (ret->scale >= 1000000)
            return -1;
        ret->frac = ret->frac * 10 + (uint64_t)(**p - '0');
        ret->scale *= 10;
    }
    return 0;
}

static int base_parse_decimal_times(const struct decimal *d, uint64_t unit, uint64_t *ret)
{
    uint64_t whole, frac;

    if (__builtin_mul_overflow(d->whole, unit, &whole) ||
        __builtin_mul_overflow(d->frac, unit, &frac))
        return -1;
    return __builtin_add_overflow(whole, frac / d->scale, ret) ? -1 : 0;
}

int parse_u64(const char *s, uint64_t min, uint64_t max, uint64_t *ret, struct err *err)
{
    const char *p = s;
    uint64_t v;

    if (!*s || strspn(s, "0123456789") != strlen(s))
        return err_set(err, ERR_INVALID, "'%s' is not a whole number", s);
    if (base_parse_scan_digits(&p, &v) < 0 || v < min || v > max)
        return err_set(err, ERR_INVALID, "'%s' is out of range (must be between %llu and %llu)", s,
                       (unsigned long long)min, (unsigned long long)max);
    *ret = v;
    return 0;
}

int parse_u32(const char *s, uint32_t min, uint32_t max, uint32_t *ret, struct err *err)
{
    uint64_t v = 0;
    int r = parse_u64(s, min, max, &v, err);

    if (r < 0)
        return r;
    *ret = (uint32_t)v;
    return 0;
}

int parse_size(const char *s, uint64_t *ret, struct err *err)
{
    static const char suffixes[] = "KMGT";
    struct decimal d;
    const char *p = s, *hit;
    uint64_t unit = 1;

    if (base_parse_scan_decimal(&p, &d) < 0)
        goto bad;
    if (*p) {
        hit = strchr(suffixes, toupper((unsigned char)*p));
        if (hit) {
            unit = 1ULL << (10 * (unsigned)(hit - suffixes + 1));
            p++;
            if (*p == 'i')
                p++;
        }
        if (*p == 'B' || *p == 'b')
            p++;
    }
    if (*p || (unit == 1 && d.scale > 1) || base_parse_decimal_times(&d, unit, ret) < 0)
        goto bad;
    return 0;
bad:
    return err_set(err, ERR_INVALID, "'%s' is not a size such as 512M, 1.5G or 1048576", s);
}

int parse_duration(const char *s, uint64_t *ret_usec, struct err *err)
{
    /* clang-format off */
    static const struct { const char *name; uint64_t usec; } units[] = {
        { "us", 1 }, { "ms", 1000 }, { "s", 1000000 }, { "m", 60000000 }, { "h", 3600000000 }, { "d", 86400000000 },
    };
    /* clang-format on */
    const char *p = s;
    uint64_t total = 0, part;
    struct decimal d;

    do {
        uint64_t unit = 0;
        size_t len;

        if (base_parse_scan_decimal(&p, &d) < 0)
            goto bad;
        len = strspn(p, "abcdefghijklmnopqrstuvwxyz");
        for (size_t i = 0; i < ARRAY_SIZE(units); i++)
            if (strlen(units[i].name) == len && memcmp(p, units[i].name, len) == 0)
                unit = units[i].usec;
        if (len == 0 && p[0] == '\0' && total == 0)
            unit = usec_per_sec;
        if (!unit || base_parse_decimal_times(&d, unit, &part) < 0 ||
            __builtin_add_overflow(total, part, &total))
            goto bad;
        p += len;
    } while (*p);
    *ret_usec = total;
    return 0;
bad:
    return err_set(err, ERR_INVALID, "'%s' is not a duration such as 30s, 5m, 1h30m or 250ms", s);
}

int parse_cpus(const char *s, uint32_t min_milli, uint32_t max_milli, uint32_t *ret_milli,
               struct err *err)
{
    const char *p = s;
    struct decimal d;
    uint64_t milli;

    if (base_parse_scan_decimal(&p, &d) < 0 || *p)
        return err_set(err, ERR_INVALID, "'%s' is not a number of CPUs such as 2 or 0.5", s);
    if (base_parse_decimal_times(&d, 1000, &milli) < 0 || milli < min_milli || milli > max_milli)
        return err_set(err, ERR_INVALID, "'%s' is out of range (must be between %g and %g)", s,
                       min_milli / 1000.0, max_milli / 1000.0);
    *ret_milli = (uint32_t)milli;
    return 0;
}

static const char *base_parse_format_bound(uint64_t v, enum parse_unit unit,
                                           char buf[static FORMAT_MAX])
{
    if (unit == PARSE_BYTES)
        return format_size(v, buf);
    if (unit == PARSE_MSEC)
        return format_duration(v * 1000, buf);
    snprintf(buf, FORMAT_MAX, "%llu", (unsigned long long)v);
    return buf;
}

int parse_check_range(const char *name, uint64_t v, uint64_t min, uint64_t max,
                      enum parse_unit unit, struct err *err)
{
    char low[FORMAT_MAX], high[FORMAT_MAX];

    if (v >= min && v <= max)
        return 0;
    return err_set(err, ERR_INVALID, "%s must be between %s and %s", name,
                   base_parse_format_bound(min, unit, low),
                   base_parse_format_bound(max, unit, high));
}

int parse_bool(const char *s, bool *ret, struct err *err)
{
    static const char *const yes[] = {"yes", "true", "on", "1"};
    static const char *const no[] = {"no", "false", "off", "0"};

    for (size_t i = 0; i < ARRAY_SIZE(yes); i++) {
        if (STREQ(s, yes[i]) || STREQ(s, no[i])) {
            *ret = STREQ(s, yes[i]);
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "'%s' is not yes or no", s);
}

const char *signal_name(int sig)
{
    return sigabbrev_np(sig);
}

int parse_signal(const char *s, int *ret, struct err *err)
{
    const char *name = strncmp(s, "SIG", 3) == 0 ? s + 3 : s;
    uint32_t n;

    if (isdigit((unsigned char)*s)) {
        if (parse_u32(s, 1, 64, &n, NULL) == 0) {
            *ret = (int)n;
            return 0;
        }
    } else {
        for (int sig = 1; sig < 32; sig++) {
            const char *abbrev = sigabbrev_np(sig);

            if (abbrev && STREQ(abbrev, name)) {
                *ret = sig;
                return 0;
            }
        }
    }
    return err_set(err, ERR_INVALID, "'%s' is not a signal such as TERM, KILL or 15", s);
}

static bool base_parse_is_name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9');
}

bool name_is_valid(const char *s)
{
    size_t len = strlen(s);

    if (len < 1 || len > NAME_MAX_LEN || !base_parse_is_name_char(s[0]) ||
        !base_parse_is_name_char(s[len - 1]))
        return false;
    for (size_t i = 0; i < len; i++)
        if (!base_parse_is_name_char(s[i]) && s[i] != '-')
            return false;
    return true;
}

int parse_name(const char *what, const char *s, struct err *err)
{
    if (name_is_valid(s))
        return 0;
    err_set(err, ERR_INVALID, "%s '%.80s' is not a valid name", what, s);
    return err_hint(err, "Use 1 to 63 characters of a-z, 0-9 and '-'; the first and the last are a "
                         "letter or digit.");
}

static bool base_parse_is_id(const char *s, size_t len)
{
    uint64_t v = 0;

    if (len < 1 || len > 5 || (len > 1 && s[0] == '0'))
        return false;
    for (size_t i = 0; i < len; i++) {
        if (!isdigit((unsigned char)s[i]))
            return false;
        v = v * 10 + (uint64_t)(s[i] - '0');
    }
    return v <= USER_ID_MAX;
}

int parse_user(const char *s, struct err *err)
{
    const char *colon = strchr(s, ':');
    size_t len = strlen(s);

    if (colon ? base_parse_is_id(s, (size_t)(colon - s)) &&
                    base_parse_is_id(colon + 1, strlen(colon + 1))
              : base_parse_is_id(s, len))
        return 0;
    if ((islower((unsigned char)s[0]) || s[0] == '_') && len <= USER_NAME_MAX &&
        strspn(s, "abcdefghijklmnopqrstuvwxyz0123456789_-") == len)
        return 0;
    return err_set(err, ERR_INVALID,
                   "'%.80s' is not a user (a name, UID or UID:GID with numbers up to %d)", s,
                   USER_ID_MAX);
}

int parse_mode(const char *s, uint64_t *ret, struct err *err)
{
    size_t len = strspn(s, "01234567");

    if (len == 0 || s[len] || len > MODE_DIGITS_MAX || strtoul(s, NULL, 8) > 0777)
        return err_set(err, ERR_INVALID, "'%.20s' is not a mode (octal, from 0 to 0777)", s);
    *ret = strtoul(s, NULL, 8);
    return 0;
}

int parse_env(const char *s, struct err *err)
{
    size_t len = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_");

    if (len == 0 || s[len] != '=' || isdigit((unsigned char)s[0]))
        return err_set(err, ERR_INVALID,
                       "'%.*s' is not KEY=VALUE (a key has letters, digits and '_')",
                       (int)strcspn(s, "="), s);
    return 0;
}

int parse_secret_name(const char *s, struct err *err)
{
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_";
    size_t first = strspn(s, letters), len = first;

    while (s[len] && (strchr(letters, s[len]) || s[len] == '.' || s[len] == '-'))
        len++;
    if (first && len <= 64 && !s[len])
        return 0;
    return err_set(err, ERR_INVALID,
                   "'%.80s' is not a valid secret name (1 to 64 letters, digits, '_', '.' and '-'; "
                   "the first is not '.' or '-')",
                   s);
}

const char *format_size(uint64_t bytes, char buf[static FORMAT_MAX])
{
    static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
    double v = (double)bytes;
    size_t u = 0;

    for (; v >= 1024 && u + 1 < ARRAY_SIZE(units); u++)
        v /= 1024;
    if (v == (double)(uint64_t)v)
        snprintf(buf, FORMAT_MAX, "%.0f %s", v, units[u]);
    else
        snprintf(buf, FORMAT_MAX, "%.1f %s", v, units[u]);
    return buf;
}

/* "30m", not "30m0s". */
static const char *base_parse_two_units(unsigned long long n, const char *unit,
                                        unsigned long long rest, const char *small,
                                        char buf[static FORMAT_MAX])
{
    if (rest)
        snprintf(buf, FORMAT_MAX, "%llu%s%llu%s", n, unit, rest, small);
    else
        snprintf(buf, FORMAT_MAX, "%llu%s", n, unit);
    return buf;
}

const char *format_duration(uint64_t usec, char buf[static FORMAT_MAX])
{
    unsigned long long s = usec / usec_per_sec;

    if (s >= 86400)
        return base_parse_two_units(s / 86400, "d", s % 86400 / 3600, "h", buf);
    if (s >= 3600)
        return base_parse_two_units(s / 3600, "h", s % 3600 / 60, "m", buf);
    if (s >= 60)
        return base_parse_two_units(s / 60, "m", s % 60, "s", buf);
    if (usec == s * usec_per_sec)
        return base_parse_two_units(s, "s", 0, "", buf);
    if (s)
        snprintf(buf, FORMAT_MAX, "%.1fs", (double)usec / (double)usec_per_sec);
    else if (usec % 1000 == 0)
        snprintf(buf, FORMAT_MAX, "%llums", (unsigned long long)usec / 1000);
    else
        snprintf(buf, FORMAT_MAX, "%.1fms", (double)usec / 1000);
    return buf;
}

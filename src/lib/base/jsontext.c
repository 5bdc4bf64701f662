/*
 * A loop over values with a stack of open brackets, one bit each. `out` is where compaction writes;
 * it never overtakes the reading, so both may be the same memory.
 */
#include "lib/base/jsontext.h"

#include <stdint.h>
#include <string.h>

#include "lib/base/text.h"

struct scan {
    const char *p, *end;
    char *out; /* NULL: nothing is written */
    unsigned depth;
    uint8_t object[JSON_TEXT_DEPTH_MAX]; /* of each open bracket: is it an object's */
};

static void put(struct scan *s, const char *from)
{
    size_t len = (size_t)(s->p - from);

    if (!s->out)
        return;
    memmove(s->out, from, len);
    s->out += len;
}

static bool at(const struct scan *s, char c)
{
    return s->p < s->end && *s->p == c;
}

static bool take(struct scan *s, char c)
{
    if (!at(s, c))
        return false;
    s->p++;
    put(s, s->p - 1);
    return true;
}

static void skip_space(struct scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r' || *s->p == '\n'))
        s->p++;
}

/* ---- strings ---- */

static bool skip_escape(struct scan *s)
{
    if (s->p + 1 >= s->end)
        return false;
    s->p++;
    if (*s->p != 'u')
        return *s->p && strchr("\"\\/bfnrt", *s->p++);
    s->p++;
    for (int i = 0; i < 4; i++, s->p++)
        if (s->p >= s->end || text_hex_digit(*s->p) < 0)
            return false;
    return true;
}

static bool skip_char(struct scan *s)
{
    unsigned cp;
    size_t n;

    if (*s->p == '\\')
        return skip_escape(s);
    if ((unsigned char)*s->p < 0x20)
        return false;
    n = (unsigned char)*s->p < 0x80 ? 1 : text_utf8_next(s->p, (size_t)(s->end - s->p), &cp);
    s->p += n;
    return n > 0;
}

static bool scan_string(struct scan *s)
{
    const char *from = s->p;

    if (!at(s, '"'))
        return false;
    s->p++;
    while (s->p < s->end && *s->p != '"')
        if (!skip_char(s))
            return false;
    if (!at(s, '"'))
        return false;
    s->p++;
    put(s, from);
    return true;
}

/* ---- numbers and words ---- */

static bool skip_digits(struct scan *s)
{
    const char *from = s->p;

    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > from;
}

static bool scan_number(struct scan *s)
{
    const char *from = s->p;

    if (at(s, '-'))
        s->p++;
    if (at(s, '0'))
        s->p++;
    else if (!skip_digits(s))
        return false;
    if (at(s, '.') && (s->p++, !skip_digits(s)))
        return false;
    if (at(s, 'e') || at(s, 'E')) {
        s->p++;
        if (at(s, '+') || at(s, '-'))
            s->p++;
        if (!skip_digits(s))
            return false;
    }
    put(s, from);
    return true;
}

static bool scan_word(struct scan *s, const char *word)
{
    const char *from = s->p;
    size_t len = strlen(word);

    if ((size_t)(s->end - s->p) < len || memcmp(s->p, word, len) != 0)
        return false;
    s->p += len;
    put(s, from);
    return true;
}

static bool scan_scalar(struct scan *s)
{
    if (at(s, '"'))
        return scan_string(s);
    if (at(s, 't'))
        return scan_word(s, "true");
    if (at(s, 'f'))
        return scan_word(s, "false");
    if (at(s, 'n'))
        return scan_word(s, "null");
    return scan_number(s);
}

/* ---- the whole ---- */

static bool scan_key(struct scan *s)
{
    skip_space(s);
    if (!scan_string(s))
        return false;
    skip_space(s);
    return take(s, ':');
}

/* Begins a value: 1 when it is whole, 0 when a bracket was opened and a value follows, -1. */
static int open_value(struct scan *s)
{
    bool object;

    skip_space(s);
    object = at(s, '{');
    if (!object && !at(s, '['))
        return scan_scalar(s) ? 1 : -1;
    take(s, object ? '{' : '[');
    skip_space(s);
    if (take(s, object ? '}' : ']'))
        return 1;
    if (s->depth == JSON_TEXT_DEPTH_MAX || (object && !scan_key(s)))
        return -1;
    s->object[s->depth++] = object;
    return 0;
}

/* After a value: 1 when all brackets are closed, 0 when another value follows, -1. */
static int close_values(struct scan *s)
{
    while (s->depth) {
        bool object = s->object[s->depth - 1];

        skip_space(s);
        if (take(s, ','))
            return object && !scan_key(s) ? -1 : 0;
        if (!take(s, object ? '}' : ']'))
            return -1;
        s->depth--;
    }
    return 1;
}

static bool scan_all(struct scan *s)
{
    int r = 0;

    while (r == 0) {
        r = open_value(s);
        if (r > 0)
            r = close_values(s);
    }
    skip_space(s);
    return r > 0 && s->p == s->end;
}

enum json_text_kind json_text_kind(const char *s, size_t len)
{
    struct scan scan = {.p = s, .end = s + len};
    bool object;

    skip_space(&scan);
    object = at(&scan, '{');
    if (!scan_all(&scan))
        return JSON_TEXT_BAD;
    return object ? JSON_TEXT_OBJECT : JSON_TEXT_OTHER;
}

int json_text_compact(char *s, size_t *len, struct err *err)
{
    struct scan scan = {.p = s, .end = s + *len, .out = s};

    if (!scan_all(&scan))
        return err_set(err, ERR_INVALID, "not a JSON value: byte %zu%s", (size_t)(scan.p - s),
                       scan.depth == JSON_TEXT_DEPTH_MAX ? " is nested too deep" : "");
    *len = (size_t)(scan.out - s);
    return 0;
}

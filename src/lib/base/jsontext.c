/*
 * A loop over values with a stack of open brackets, one bit each. Compaction writes to `out`, which
 * never overtakes the reading position, so both may be the same memory.
 */
#include "lib/base/jsontext.h"

#include <stdint.h>
#include <string.h>

#include "lib/base/text.h"

struct jsontext_scan {
    const char *p, *end;
    char *out; /* NULL: nothing is written */
    unsigned depth;
    uint8_t object[JSON_TEXT_DEPTH_MAX]; /* one bit per open bracket: 1 for an object */

    /* What json_text_has_member() looks for in the outermost object. */
    const char *key; /* NULL: nothing */
    const char *const *values;
    bool at_key; /* the value that follows belongs to such a key */
    bool found;
};

static void jsontext_put(struct jsontext_scan *s, const char *from)
{
    size_t len = (size_t)(s->p - from);

    if (!s->out)
        return;
    memmove(s->out, from, len);
    s->out += len;
}

static bool jsontext_at(const struct jsontext_scan *s, char c)
{
    return s->p < s->end && *s->p == c;
}

static bool jsontext_take(struct jsontext_scan *s, char c)
{
    if (!jsontext_at(s, c))
        return false;
    s->p++;
    jsontext_put(s, s->p - 1);
    return true;
}

static void jsontext_skip_space(struct jsontext_scan *s)
{
    while (s->p < s->end && (*s->p == ' ' || *s->p == '\t' || *s->p == '\r' || *s->p == '\n'))
        s->p++;
}

/* ---- strings ---- */

static bool jsontext_skip_escape(struct jsontext_scan *s)
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

static bool jsontext_skip_char(struct jsontext_scan *s)
{
    unsigned cp;
    size_t n;

    if (*s->p == '\\')
        return jsontext_skip_escape(s);
    if ((unsigned char)*s->p < 0x20)
        return false;
    n = (unsigned char)*s->p < 0x80 ? 1 : text_utf8_next(s->p, (size_t)(s->end - s->p), &cp);
    s->p += n;
    return n > 0;
}

static bool jsontext_scan_string(struct jsontext_scan *s)
{
    const char *from = s->p;

    if (!jsontext_at(s, '"'))
        return false;
    s->p++;
    while (s->p < s->end && *s->p != '"')
        if (!jsontext_skip_char(s))
            return false;
    if (!jsontext_at(s, '"'))
        return false;
    s->p++;
    jsontext_put(s, from);
    return true;
}

/* The character at *p, decoded, or -1 for one that is not ASCII; moves *p behind it. The string is
 * well-formed. */
static int jsontext_ascii(const char **p)
{
    static const char escaped[] = "b\bf\fn\nr\rt\t";
    const char *c = *p, *match;
    int code = 0;

    if (*c != '\\') {
        *p += 1;
        return (unsigned char)*c < 0x80 ? *c : -1;
    }
    if (c[1] != 'u') {
        *p += 2;
        match = strchr(escaped, c[1]);
        return match ? match[1] : c[1];
    }
    *p += 6;
    for (int i = 2; i < 6; i++)
        code = code * 16 + text_hex_digit(c[i]);
    return code < 0x80 ? code : -1;
}

/* Whether the string between two quotes is this word once its escapes are decoded. */
static bool jsontext_is_word(const char *p, const char *end, const char *word, bool ignore_case)
{
    for (; p < end && *word; word++) {
        int c = jsontext_ascii(&p);

        if (ignore_case && c >= 'A' && c <= 'Z')
            c += 'a' - 'A';
        if (c != *word)
            return false;
    }
    return p == end && !*word;
}

/* ---- numbers and words ---- */

static bool jsontext_skip_digits(struct jsontext_scan *s)
{
    const char *from = s->p;

    while (s->p < s->end && *s->p >= '0' && *s->p <= '9')
        s->p++;
    return s->p > from;
}

static bool jsontext_scan_number(struct jsontext_scan *s)
{
    const char *from = s->p;

    if (jsontext_at(s, '-'))
        s->p++;
    if (jsontext_at(s, '0'))
        s->p++;
    else if (!jsontext_skip_digits(s))
        return false;
    if (jsontext_at(s, '.') && (s->p++, !jsontext_skip_digits(s)))
        return false;
    if (jsontext_at(s, 'e') || jsontext_at(s, 'E')) {
        s->p++;
        if (jsontext_at(s, '+') || jsontext_at(s, '-'))
            s->p++;
        if (!jsontext_skip_digits(s))
            return false;
    }
    jsontext_put(s, from);
    return true;
}

static bool jsontext_scan_word(struct jsontext_scan *s, const char *word)
{
    const char *from = s->p;
    size_t len = strlen(word);

    if ((size_t)(s->end - s->p) < len || memcmp(s->p, word, len) != 0)
        return false;
    s->p += len;
    jsontext_put(s, from);
    return true;
}

static bool jsontext_scan_scalar(struct jsontext_scan *s)
{
    if (jsontext_at(s, '"'))
        return jsontext_scan_string(s);
    if (jsontext_at(s, 't'))
        return jsontext_scan_word(s, "true");
    if (jsontext_at(s, 'f'))
        return jsontext_scan_word(s, "false");
    if (jsontext_at(s, 'n'))
        return jsontext_scan_word(s, "null");
    return jsontext_scan_number(s);
}

/* ---- the whole ---- */

/* depth: the number of objects and arrays around the object of this key */
static bool jsontext_scan_key(struct jsontext_scan *s, unsigned depth)
{
    const char *from;

    jsontext_skip_space(s);
    from = s->p;
    if (!jsontext_scan_string(s))
        return false;
    if (s->key && !depth)
        s->at_key = jsontext_is_word(from + 1, s->p - 1, s->key, true);
    jsontext_skip_space(s);
    return jsontext_take(s, ':');
}

/* Notes whether the string that ends here is one of the values. */
static void jsontext_compare_value(struct jsontext_scan *s, const char *from)
{
    for (size_t i = 0; s->values[i]; i++)
        if (jsontext_is_word(from + 1, s->p - 1, s->values[i], false))
            s->found = true;
}

/* Begins a value. 1: it is complete; 0: it opened a bracket and a value follows; -1: malformed. */
static int jsontext_open_value(struct jsontext_scan *s)
{
    const char *from;
    bool object;

    jsontext_skip_space(s);
    from = s->p;
    object = jsontext_at(s, '{');
    if (!object && !jsontext_at(s, '[')) {
        if (!jsontext_scan_scalar(s))
            return -1;
        if (s->at_key && s->depth == 1 && *from == '"')
            jsontext_compare_value(s, from);
        return 1;
    }
    jsontext_take(s, object ? '{' : '[');
    jsontext_skip_space(s);
    if (jsontext_take(s, object ? '}' : ']'))
        return 1;
    if (s->depth == JSON_TEXT_DEPTH_MAX || (object && !jsontext_scan_key(s, s->depth)))
        return -1;
    s->object[s->depth++] = object;
    return 0;
}

/* After a value. 1: all brackets are closed; 0: another value follows; -1: malformed. */
static int jsontext_close_values(struct jsontext_scan *s)
{
    while (s->depth) {
        bool object = s->object[s->depth - 1];

        jsontext_skip_space(s);
        if (jsontext_take(s, ','))
            return object && !jsontext_scan_key(s, s->depth - 1) ? -1 : 0;
        if (!jsontext_take(s, object ? '}' : ']'))
            return -1;
        s->depth--;
    }
    return 1;
}

static bool jsontext_scan_all(struct jsontext_scan *s)
{
    int r = 0;

    while (r == 0) {
        r = jsontext_open_value(s);
        if (r > 0)
            r = jsontext_close_values(s);
    }
    jsontext_skip_space(s);
    return r > 0 && s->p == s->end;
}

enum json_text_kind json_text_kind(const char *s, size_t len)
{
    struct jsontext_scan scan = {.p = s, .end = s + len};
    bool object;

    jsontext_skip_space(&scan);
    object = jsontext_at(&scan, '{');
    if (!jsontext_scan_all(&scan))
        return JSON_TEXT_BAD;
    return object ? JSON_TEXT_OBJECT : JSON_TEXT_OTHER;
}

bool json_text_has_member(const char *s, size_t len, const char *key, const char *const *values)
{
    struct jsontext_scan scan = {.p = s, .end = s + len, .key = key, .values = values};

    return jsontext_scan_all(&scan) && scan.found;
}

int json_text_compact(char *s, size_t *len, struct err *err)
{
    struct jsontext_scan scan = {.p = s, .end = s + *len, .out = s};

    if (!jsontext_scan_all(&scan))
        return err_set(err, ERR_INVALID, "not a JSON value: byte %zu%s", (size_t)(scan.p - s),
                       scan.depth == JSON_TEXT_DEPTH_MAX ? " is nested too deep" : "");
    *len = (size_t)(scan.out - s);
    return 0;
}

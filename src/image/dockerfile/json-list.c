#include "image/dockerfile/json-list.h"

#include <ctype.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"

enum { DEPTH_MAX = 64 };

struct json_list_reader {
    const char *s;
    size_t pos, end;
};

static void json_list_skip_blanks(struct json_list_reader *r)
{
    while (r->pos < r->end && memchr(" \t\r\n", r->s[r->pos], 4))
        r->pos++;
}

static bool json_list_take(struct json_list_reader *r, char c)
{
    if (r->pos >= r->end || r->s[r->pos] != c)
        return false;
    r->pos++;
    return true;
}

/* ---- strings ---- */

static bool json_list_read_hex(struct json_list_reader *r, unsigned *ret)
{
    unsigned value = 0;

    if (r->end - r->pos < 4)
        return false;
    for (int i = 0; i < 4; i++) {
        int digit = text_hex_digit(r->s[r->pos++]);

        if (digit < 0)
            return false;
        value = value << 4 | (unsigned)digit;
    }
    *ret = value;
    return true;
}

static void json_list_put_utf8(struct buf *b, unsigned c)
{
    char out[4];
    size_t n;

    if (c < 0x80) {
        out[0] = (char)c;
        n = 1;
    } else if (c < 0x800) {
        out[0] = (char)(0xc0 | c >> 6);
        n = 2;
    } else if (c < 0x10000) {
        out[0] = (char)(0xe0 | c >> 12);
        n = 3;
    } else {
        out[0] = (char)(0xf0 | c >> 18);
        n = 4;
    }
    for (size_t i = 1; i < n; i++)
        out[i] = (char)(0x80 | ((c >> 6 * (n - 1 - i)) & 0x3f));
    (void)!buf_append(b, out, n); /* never longer than the text it came from */
}

/* Reads \uXXXX and the second half of a pair; a half alone becomes U+FFFD. */
static bool json_list_read_unicode(struct json_list_reader *r, struct buf *b)
{
    unsigned c, low;
    size_t back;

    if (!json_list_read_hex(r, &c))
        return false;
    back = r->pos;
    if (c >= 0xd800 && c < 0xdc00 && json_list_take(r, '\\') && json_list_take(r, 'u') &&
        json_list_read_hex(r, &low) && low >= 0xdc00 && low < 0xe000) {
        json_list_put_utf8(b, 0x10000 + ((c - 0xd800) << 10) + (low - 0xdc00));
        return true;
    }
    r->pos = back;
    json_list_put_utf8(b, c >= 0xd800 && c < 0xe000 ? 0xfffd : c);
    return true;
}

static bool json_list_read_escape(struct json_list_reader *r, struct buf *b)
{
    static const char from[] = "\"\\/bfnrt", to[] = "\"\\/\b\f\n\r\t";
    const char *found;
    char c;

    if (r->pos >= r->end)
        return false;
    c = r->s[r->pos++];
    if (c == 'u')
        return json_list_read_unicode(r, b);
    found = c ? strchr(from, c) : NULL;
    if (!found)
        return false;
    (void)!buf_append_c(b, to[found - from]);
    return true;
}

/* Reads a string after its opening quote. A byte that is not UTF-8 becomes U+FFFD, as in Go. */
static bool json_list_read_string(struct json_list_reader *r, char **ret)
{
    struct buf b = BUF_INIT((r->end - r->pos) * 3 + 4);
    bool good = true;

    while (good && r->pos < r->end && r->s[r->pos] != '"') {
        unsigned c;
        size_t n = text_utf8_next(r->s + r->pos, r->end - r->pos, &c);

        if ((unsigned char)r->s[r->pos] < 0x20) {
            good = false;
        } else if (r->s[r->pos] == '\\') {
            r->pos++;
            good = json_list_read_escape(r, &b);
        } else if (n) {
            (void)!buf_append(&b, r->s + r->pos, n);
            r->pos += n;
        } else {
            json_list_put_utf8(&b, 0xfffd);
            r->pos++;
        }
    }
    good = good && json_list_take(r, '"') && !memchr(buf_data(&b), 0, b.len);
    if (good && ret)
        *ret = buf_steal(&b);
    buf_done(&b);
    return good;
}

/* ---- other values: only to check that they are JSON ---- */

static bool json_list_skip_digits(struct json_list_reader *r)
{
    size_t start = r->pos;

    while (r->pos < r->end && isdigit((unsigned char)r->s[r->pos]))
        r->pos++;
    return r->pos > start;
}

static bool json_list_skip_number(struct json_list_reader *r)
{
    (void)json_list_take(r, '-');
    if (!json_list_take(r, '0') && !json_list_skip_digits(r))
        return false;
    if (json_list_take(r, '.') && !json_list_skip_digits(r))
        return false;
    if (json_list_take(r, 'e') || json_list_take(r, 'E')) {
        if (!json_list_take(r, '+'))
            (void)json_list_take(r, '-');
        return json_list_skip_digits(r);
    }
    return true;
}

static bool json_list_skip_literal(struct json_list_reader *r, const char *word)
{
    size_t n = strlen(word);

    if (r->end - r->pos < n || memcmp(r->s + r->pos, word, n) != 0)
        return false;
    r->pos += n;
    return true;
}

static bool json_list_skip_value(struct json_list_reader *r, unsigned depth);

/* Skips the rest of an array or object after its opening bracket. */
static bool json_list_skip_members(struct json_list_reader *r, char close, unsigned depth)
{
    json_list_skip_blanks(r);
    if (json_list_take(r, close))
        return true;
    do {
        json_list_skip_blanks(r);
        if (close == '}') {
            if (!json_list_take(r, '"') || !json_list_read_string(r, NULL))
                return false;
            json_list_skip_blanks(r);
            if (!json_list_take(r, ':'))
                return false;
        }
        if (!json_list_skip_value(r, depth + 1))
            return false;
        json_list_skip_blanks(r);
    } while (json_list_take(r, ','));
    return json_list_take(r, close);
}

static bool json_list_skip_value(struct json_list_reader *r, unsigned depth)
{
    json_list_skip_blanks(r);
    if (depth > DEPTH_MAX || r->pos >= r->end)
        return false;
    if (json_list_take(r, '"'))
        return json_list_read_string(r, NULL);
    if (json_list_take(r, '['))
        return json_list_skip_members(r, ']', depth);
    if (json_list_take(r, '{'))
        return json_list_skip_members(r, '}', depth);
    return json_list_skip_literal(r, "true") || json_list_skip_literal(r, "false") ||
           json_list_skip_literal(r, "null") || json_list_skip_number(r);
}

/* ---- the list ---- */

void json_list_free(struct json_list_item *items, size_t n)
{
    for (size_t i = 0; i < n; i++)
        free(items[i].text);
    free(items);
}

static struct json_list_item *json_list_push(struct json_list_item **items, size_t *n)
{
    if (!(*n & (*n - 1)))
        *items = xreallocarray(*items, *n ? *n * 2 : 1, sizeof(**items));
    (*items)[*n] = (struct json_list_item){0};
    return &(*items)[(*n)++];
}

static bool json_list_read_items(struct json_list_reader *r, struct json_list_item **items,
                                 size_t *n, bool *mixed)
{
    json_list_skip_blanks(r);
    if (json_list_take(r, ']'))
        return true;
    do {
        struct json_list_item spare = {0}, *item = *mixed ? &spare : json_list_push(items, n);
        bool good;

        json_list_skip_blanks(r);
        item->start = r->pos;
        if (!*mixed && json_list_take(r, '"')) {
            good = json_list_read_string(r, &item->text);
        } else {
            good = json_list_skip_value(r, 0);
            *mixed = true;
        }
        item->end = r->pos;
        if (!good)
            return false;
        json_list_skip_blanks(r);
    } while (json_list_take(r, ','));
    return json_list_take(r, ']');
}

enum json_list_result json_list_parse(const char *s, size_t start, size_t end,
                                      struct json_list_item **ret, size_t *ret_n)
{
    struct json_list_reader r = {s, start, end};
    struct json_list_item *items = NULL;
    size_t n = 0;
    bool mixed = false, good;

    json_list_skip_blanks(&r);
    good = json_list_take(&r, '[') && json_list_read_items(&r, &items, &n, &mixed);
    json_list_skip_blanks(&r);
    if (!good || r.pos != r.end) {
        json_list_free(items, n);
        return JSON_LIST_NO;
    }
    *ret = items;
    *ret_n = n;
    return mixed ? JSON_LIST_MIXED : JSON_LIST_YES;
}

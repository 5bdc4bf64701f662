#include "lib/base/json-put.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/text.h"
#include "lib/base/time.h"

enum { DIGITS = 20 };

static void json_put_bytes(struct buf *b, const char *s, size_t len)
{
    if (buf_append(b, s, len) < 0)
        abort(); /* the buffer is not JSON_PUT_INIT */
}

static void json_put_escaped(struct buf *b, const char *s, size_t len)
{
    json_put_bytes(b, "\"", 1);
    if (text_escape_json_n(b, s, len) < 0)
        abort();
    json_put_bytes(b, "\"", 1);
}

/* Nearly all texts are plain, and one copy is then enough. */
static void json_put_quoted(struct buf *b, const char *s)
{
    size_t len = strlen(s);
    char *p;

    if (text_plain_span(s, len) < len) {
        json_put_escaped(b, s, len);
        return;
    }
    p = buf_reserve(b, len + 2);
    if (!p)
        abort();
    p[0] = p[len + 1] = '"';
    memcpy(p + 1, s, len);
    buf_commit(b, len + 2);
}

/* An opening bracket is never the end of a value: in a string, a quotation mark follows it. */
static void json_put_begin(struct buf *b, const char *key)
{
    char last = b->len ? buf_data(b)[b->len - 1] : '{';

    if (last != '{' && last != '[')
        json_put_bytes(b, ",", 1);
    if (!key)
        return;
    json_put_quoted(b, key);
    json_put_bytes(b, ":", 1);
}

void json_put_open(struct buf *b, const char *key, char bracket)
{
    json_put_begin(b, key);
    json_put_bytes(b, &bracket, 1);
}

void json_put_close(struct buf *b, char bracket)
{
    json_put_bytes(b, &bracket, 1);
}

void json_put_raw(struct buf *b, const char *key, const char *json)
{
    json_put_begin(b, key);
    json_put_bytes(b, json, strlen(json));
}

void json_put_string(struct buf *b, const char *key, const char *s)
{
    json_put_begin(b, key);
    if (s)
        json_put_quoted(b, s);
    else
        json_put_bytes(b, "null", 4);
}

/* snprintf() takes longer than all the rest. */
void json_put_number(struct buf *b, const char *key, uint64_t n)
{
    char digits[DIGITS], *p = digits + DIGITS;

    json_put_begin(b, key);
    do
        *--p = (char)('0' + n % 10);
    while (n /= 10);
    json_put_bytes(b, p, (size_t)(digits + DIGITS - p));
}

void json_put_bool(struct buf *b, const char *key, bool yes)
{
    json_put_raw(b, key, yes ? "true" : "false");
}

void json_put_time(struct buf *b, const char *key, uint64_t wall)
{
    char text[TIME_FORMAT_MAX];

    json_put_string(b, key, wall ? time_format(wall, text) : NULL);
}

#include "lib/base/text.h"

#include <stdbool.h>

#include "lib/base/guard.h"

size_t text_utf8_next(const char *str, size_t len, unsigned *ret)
{
    const unsigned char *s = (const unsigned char *)str;
    unsigned cp, min;
    size_t n;

    if (len == 0)
        return 0;
    if (s[0] < 0x80) {
        *ret = s[0];
        return 1;
    }
    if ((s[0] & 0xe0) == 0xc0)
        n = 2, cp = s[0] & 0x1f, min = 0x80;
    else if ((s[0] & 0xf0) == 0xe0)
        n = 3, cp = s[0] & 0x0f, min = 0x800;
    else if ((s[0] & 0xf8) == 0xf0)
        n = 4, cp = s[0] & 0x07, min = 0x10000;
    else
        return 0;
    if (n > len)
        return 0;
    for (size_t i = 1; i < n; i++) {
        if ((s[i] & 0xc0) != 0x80)
            return 0;
        cp = cp << 6 | (s[i] & 0x3f);
    }
    if (cp < min || cp > 0x10ffff || (cp >= 0xd800 && cp <= 0xdfff))
        return 0;
    *ret = cp;
    return n;
}

bool text_is_utf8(const char *s, size_t len)
{
    unsigned cp;

    for (size_t i = 0, n; i < len; i += n) {
        n = (unsigned char)s[i] < 0x80 ? 1 : text_utf8_next(s + i, len - i, &cp);
        if (!n)
            return false;
    }
    return true;
}

static bool text_is_unsafe(unsigned cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || (cp >= 0x200e && cp <= 0x200f) ||
           (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069) || cp == 0xfeff;
}

int text_escape(struct buf *b, const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        unsigned cp = 0;
        size_t n = text_utf8_next(s + i, len - i, &cp);
        int r;

        if (n == 0) {
            r = buf_appendf(b, "\\x%02x", (unsigned char)s[i]);
            n = 1;
        } else if (text_is_unsafe(cp) && GUARD("escapes")) {
            r = cp == '\n'   ? buf_append_str(b, "\\n")
                : cp == '\t' ? buf_append_str(b, "\\t")
                : cp < 0x100 ? buf_appendf(b, "\\x%02x", cp)
                             : buf_appendf(b, "\\u{%04x}", cp);
        } else {
            r = buf_append(b, s + i, n);
        }
        if (r < 0)
            return r;
        i += n;
    }
    return 0;
}

size_t text_plain_span(const char *s, size_t len)
{
    size_t i = 0;

    while (i < len && s[i] >= 0x20 && s[i] < 0x7f && s[i] != '"' && s[i] != '\\')
        i++;
    return i;
}

static int text_escape_one(struct buf *b, const char *s, size_t n, unsigned cp)
{
    if (n == 0)
        return buf_append_str(b, "\xef\xbf\xbd");
    if (cp == '"' || cp == '\\')
        return buf_appendf(b, "\\%c", (char)cp);
    if (cp < 0x20 || cp == 0x7f)
        return buf_appendf(b, "\\u%04x", cp);
    return buf_append(b, s, n);
}

int text_escape_json_n(struct buf *b, const char *s, size_t len)
{
    for (size_t i = 0; i < len;) {
        size_t n = text_plain_span(s + i, len - i);
        unsigned cp = 0;
        int r;

        if (n) {
            r = buf_append(b, s + i, n);
        } else {
            n = text_utf8_next(s + i, len - i, &cp);
            r = text_escape_one(b, s + i, n, cp);
        }
        if (r < 0)
            return r;
        i += n ? n : 1;
    }
    return 0;
}

int text_escape_json(struct buf *b, const char *s)
{
    return text_escape_json_n(b, s, strlen(s));
}

int text_hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    if (c >= 'A' && c <= 'F')
        return c - 'A' + 10;
    return -1;
}

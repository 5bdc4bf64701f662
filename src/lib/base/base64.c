#include "lib/base/base64.h"

#include <stdint.h>

#include "lib/base/xalloc.h"

static int base64_digit(char c)
{
    if (c >= 'A' && c <= 'Z')
        return c - 'A';
    if (c >= 'a' && c <= 'z')
        return c - 'a' + 26;
    if (c >= '0' && c <= '9')
        return c - '0' + 52;
    return c == '+' ? 62 : c == '/' ? 63 : -1;
}

/* Decodes four characters, of which the last `pad` are '='. Unused bits must be 0. */
static int base64_quad(const char *s, size_t pad, uint32_t *ret)
{
    uint32_t v = 0;

    for (size_t i = 0; i < 4; i++) {
        int d = i < 4 - pad ? base64_digit(s[i]) : 0;

        if (d < 0)
            return -1;
        v = v << 6 | (uint32_t)d;
    }
    *ret = v;
    return v & ((1U << 8 * pad) - 1) ? -1 : 0;
}

int base64_decode(struct buf *b, const char *text, size_t len, struct err *err)
{
    size_t pad = len < 4 || text[len - 1] != '=' ? 0 : text[len - 2] == '=' ? 2 : 1;

    if (len % 4)
        return err_set(err, ERR_INVALID, "base64 text has %zu characters (must be a multiple of 4)",
                       len);
    for (size_t i = 0; i < len; i += 4) {
        size_t missing = i + 4 == len ? pad : 0;
        uint32_t v;

        if (base64_quad(text + i, missing, &v) < 0)
            return err_set(err, ERR_INVALID, "not base64 at character %zu", i + 1);
        if (buf_append(b, (const char[]){(char)(v >> 16), (char)(v >> 8), (char)v}, 3 - missing) <
            0)
            return err_set(err, ERR_LIMIT, "base64 text is too long");
    }
    return 0;
}

char *base64_encode(const void *data, size_t len)
{
    static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    char *ret = xmalloc((len + 2) / 3 * 4 + 1), *out = ret;
    const unsigned char *p = data;

    for (size_t i = 0; i < len; i += 3) {
        size_t have = MIN(len - i, (size_t)3);
        uint32_t v = (uint32_t)p[i] << 16;

        v |= have > 1 ? (uint32_t)p[i + 1] << 8 : 0;
        v |= have > 2 ? p[i + 2] : 0;
        *out++ = digits[v >> 18];
        *out++ = digits[v >> 12 & 63];
        *out++ = have > 1 ? digits[v >> 6 & 63] : '=';
        *out++ = have > 2 ? digits[v & 63] : '=';
    }
    *out = '\0';
    return ret;
}

/*
 * Request targets. The path is decoded exactly once, here. Everything that two programs could read
 * differently is refused: an encoded slash, "." and "..", empty segments, control bytes, and bytes
 * that are not UTF-8.
 */
#include "lib/http/wire/http.h"

#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/macro.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"

/* Decodes "XX" after a '%'; negative when malformed. */
static int http_target_percent_byte(const char *s)
{
    int hi = text_hex_digit(s[0]), lo = hi < 0 ? -1 : text_hex_digit(s[1]);

    return lo < 0 ? -1 : hi << 4 | lo;
}

static int http_target_path_decode(char *path, struct err *err)
{
    char *to = path;

    for (const char *from = path; *from; from++) {
        int byte = (unsigned char)*from;

        if (*from == '%') {
            byte = http_target_percent_byte(from + 1);
            if (byte < 0)
                return err_set(err, ERR_INVALID, "malformed percent-encoding in the request path");
            if (byte == '/' && GUARD("encoded slash"))
                return err_set(err, ERR_INVALID, "encoded '/' in the request path");
            from += 2;
        }
        if ((byte < 0x20 || byte == 0x7f) && GUARD("control bytes"))
            return err_set(err, ERR_INVALID, "control byte in the request path");
        *to++ = (char)byte;
    }
    *to = '\0';
    return 0;
}

/* Only the last segment may be empty ("/v1/"); "." and ".." are refused. */
static bool http_target_segments_ok(const char *path)
{
    for (const char *p = path + 1; *p;) {
        size_t n = strcspn(p, "/");

        if (n == 0 || (n == 1 && p[0] == '.') || (n == 2 && p[0] == '.' && p[1] == '.'))
            return false;
        p += n;
        p += *p == '/';
    }
    return true;
}

int http_target_split(char *target, char **ret_path, char **ret_query, struct err *err)
{
    char *query = strchr(target, '?');
    int r;

    if (target[0] != '/')
        return err_set(err, ERR_INVALID, "request path does not begin with '/'");
    if (query)
        *query++ = '\0';
    r = http_target_path_decode(target, err);
    if (r < 0)
        return r;
    if (!text_is_utf8(target, strlen(target)))
        return err_set(err, ERR_INVALID, "request path is not UTF-8");
    if (!http_target_segments_ok(target) && GUARD("path segments"))
        return err_set(err, ERR_INVALID, "request path with an empty, '.' or '..' segment");
    *ret_path = target;
    *ret_query = query;
    return 0;
}

/* A name or value of the query; '+' is a blank, as forms send it. */
static int http_target_query_decode(const char *s, size_t len, char **ret, struct err *err)
{
    _cleanup_free_ char *out = xmalloc(len + 1);
    size_t n = 0;

    for (size_t i = 0; i < len; i++) {
        int byte = s[i] == '+' ? ' ' : (unsigned char)s[i];

        if (s[i] == '%') {
            byte = len - i > 2 ? http_target_percent_byte(s + i + 1) : -1;
            if (byte <= 0)
                return err_set(err, ERR_INVALID, "malformed percent-encoding or NUL in the query");
            i += 2;
        }
        out[n++] = (char)byte;
    }
    out[n] = '\0';
    if (!text_is_utf8(out, strlen(out)))
        return err_set(err, ERR_INVALID, "query is not UTF-8");
    *ret = TAKE_PTR(out);
    return 0;
}

/* Reads one "name=value". 1 with *ret when the name equals the key. */
static int http_target_query_pair(const char *pair, size_t len, const char *key, char **ret,
                                  struct err *err)
{
    const char *eq = memchr(pair, '=', len);
    size_t name_len = eq ? (size_t)(eq - pair) : len;
    _cleanup_free_ char *name = NULL;
    int r;

    r = http_target_query_decode(pair, name_len, &name, err);
    if (r < 0)
        return r;
    if (!STREQ(name, key))
        return 0;
    if (eq)
        name_len++;
    r = http_target_query_decode(pair + name_len, len - name_len, ret, err);
    return r < 0 ? r : 1;
}

int http_query_all(const char *query, const char *key, char ***ret, struct err *err)
{
    for (const char *p = query ? query : ""; *p;) {
        size_t n = strcspn(p, "&");
        char *value = NULL;
        int r = http_target_query_pair(p, n, key, &value, err);

        if (r < 0)
            return r;
        if (r > 0)
            strv_push(ret, value);
        p += n;
        p += *p == '&';
    }
    return 0;
}

int http_query_names(const char *query, char ***ret, struct err *err)
{
    for (const char *p = query; *p;) {
        size_t n = strcspn(p, "&");
        char *name;
        int r;

        if (n) {
            r = http_target_query_decode(p, strcspn(p, "=&"), &name, err);
            if (r < 0)
                return r;
            strv_push(ret, name);
        }
        p += n;
        p += *p == '&';
    }
    return 0;
}

int http_query_get(const char *query, const char *key, char **ret, struct err *err)
{
    _cleanup_strv_ char **found = NULL;
    int r = http_query_all(query, key, &found, err);

    if (r < 0)
        return r;
    if (strv_len(found) > 1)
        return err_set(err, ERR_INVALID, "query parameter '%s' given twice", key);
    *ret = found ? xstrdup(found[0]) : NULL;
    return 0;
}

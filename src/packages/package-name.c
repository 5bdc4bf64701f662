#include "packages/package-name.h"

#include <stdio.h>
#include <string.h>

#include "lib/base/macro.h"
#include "lib/base/text.h"

static const char *const ecosystems[ECO_MAX] = {"pypi", "npm"};

const char *ecosystem_name(enum ecosystem e)
{
    return ecosystems[e];
}

int ecosystem_parse(const char *s, enum ecosystem *ret, struct err *err)
{
    for (int i = 0; i < ECO_MAX; i++)
        if (STREQ(s, ecosystems[i])) {
            *ret = (enum ecosystem)i;
            return 0;
        }
    return err_set(err, ERR_INVALID, "'%s' is not a type of upstream (pypi or npm)", s);
}

/* ASCII only, whatever the locale says. */
static bool package_name_is_alnum(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

bool name_pypi(const char *s, char ret[static NAME_MAX_LEN + 1])
{
    size_t len = strlen(s), n = 0;

    if (len == 0 || len > NAME_MAX_LEN || !package_name_is_alnum(s[0]) ||
        !package_name_is_alnum(s[len - 1]))
        return false;
    for (size_t i = 0; i < len; i++) {
        char c = s[i];

        if (c == '-' || c == '_' || c == '.') {
            if (ret[n - 1] != '-')
                ret[n++] = '-';
        } else if (package_name_is_alnum(c)) {
            ret[n++] = c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
        } else {
            return false;
        }
    }
    ret[n] = '\0';
    return true;
}

static bool package_name_npm_part(const char *s, size_t len)
{
    if (len == 0 || s[0] == '.' || s[0] == '_' || s[0] == '-')
        return false;
    for (size_t i = 0; i < len; i++)
        if (!package_name_is_alnum(s[i]) && !strchr("._~-", s[i]))
            return false;
    return true;
}

bool name_npm(const char *s)
{
    const char *slash = strchr(s, '/');

    if (strlen(s) > NAME_MAX_LEN)
        return false;
    if (s[0] != '@')
        return package_name_npm_part(s, strlen(s));
    return slash && package_name_npm_part(s + 1, (size_t)(slash - s - 1)) &&
           package_name_npm_part(slash + 1, strlen(slash + 1));
}

const char *name_npm_bare(const char *s)
{
    const char *slash = strchr(s, '/');

    return slash ? slash + 1 : s;
}

static bool package_name_plain(const char *s, size_t max, const char *also)
{
    size_t len = strlen(s);

    if (len == 0 || len > max)
        return false;
    for (size_t i = 0; i < len; i++)
        if (!package_name_is_alnum(s[i]) && !strchr(also, s[i]))
            return false;
    return true;
}

bool name_file(const char *s)
{
    return package_name_plain(s, 250, "._+!~-") && s[0] != '.' && s[0] != '-';
}

bool name_version(const char *s)
{
    return package_name_plain(s, 200, "._+!~-") && package_name_is_alnum(s[0]);
}

bool name_matches(const char *pattern, const char *name)
{
    const char *star = NULL, *back = NULL;

    while (*name) {
        if (*pattern == '*') {
            star = ++pattern;
            back = name;
        } else if (*pattern == *name) {
            pattern++;
            name++;
        } else if (star) {
            pattern = star;
            name = ++back;
        } else {
            return false;
        }
    }
    while (*pattern == '*')
        pattern++;
    return *pattern == '\0';
}

void name_pypi_version(const char *filename, char *ret, size_t size)
{
    static const char *const ends[] = {".tar.gz", ".tar.bz2", ".tar.xz", ".zip", ".tgz", ".egg"};
    size_t len = strlen(filename);
    const char *from, *to;

    ret[0] = '\0';
    if (len > 4 && STREQ(filename + len - 4, ".whl")) {
        from = strchr(filename, '-');
        to = from ? strchr(from + 1, '-') : NULL;
    } else {
        from = strrchr(filename, '-');
        to = NULL;
        for (size_t i = 0; i < ARRAY_SIZE(ends) && !to; i++) {
            size_t n = strlen(ends[i]);

            if (len > n && STREQ(filename + len - n, ends[i]))
                to = filename + len - n;
        }
    }
    if (from && to && to > from)
        snprintf(ret, size, "%.*s", (int)(to - from - 1), from + 1);
}

static int package_name_decode_segment(char *s, struct err *err)
{
    char *to = s;

    for (const char *p = s; *p; p++) {
        int byte = (unsigned char)*p;

        if (*p == '%') {
            int hi = text_hex_digit(p[1]), lo = hi < 0 ? -1 : text_hex_digit(p[2]);

            if (lo < 0)
                return err_set(err, ERR_INVALID, "malformed percent-encoding in the request path");
            byte = hi << 4 | lo;
            p += 2;
        }
        if (byte < 0x20 || byte >= 0x7f)
            return err_set(err, ERR_INVALID, "request path: a byte must be percent-encoded");
        *to++ = (char)byte;
    }
    *to = '\0';
    if (STREQ(s, ".") || STREQ(s, ".."))
        return err_set(err, ERR_INVALID, "'.' or '..' in the request path");
    return 0;
}

int name_split_target(char *target, char *segments[static NAME_SEGMENTS_MAX], size_t *n,
                      struct err *err)
{
    size_t count = 0;

    if (target[0] != '/')
        return err_set(err, ERR_INVALID, "the request target is not a path");
    target[strcspn(target, "?#")] = '\0';
    for (char *p = target; p;) {
        char *s = p + 1;
        int r;

        if (count == NAME_SEGMENTS_MAX)
            return err_set(err, ERR_NOT_FOUND, "no such path");
        p = strchr(s, '/');
        if (p)
            *p = '\0';
        if (!*s && p)
            return err_set(err, ERR_INVALID, "empty segment in the request path");
        r = package_name_decode_segment(s, err);
        if (r < 0)
            return r;
        segments[count++] = s;
    }
    *n = count;
    return 0;
}

bool name_host(const char *s)
{
    return package_name_plain(s, 260, ".:-[]");
}

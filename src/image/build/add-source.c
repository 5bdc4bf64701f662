#include "image/build/add-source.h"

#include <limits.h>
#include <stdbool.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

enum { URL_MAX = 8 << 10 };

/* The name for a URL without a path; the same as in BuildKit. */
static const char unnamed[] = "__unnamed__";

static bool add_source_begins(const char *s, const char *with)
{
    return strncmp(s, with, strlen(with)) == 0;
}

static bool add_source_is_http(const char *s)
{
    return add_source_begins(s, "http://") || add_source_begins(s, "https://");
}

/* The path ends before the query or fragment. */
static size_t add_source_path_end(const char *url)
{
    return strcspn(url, "?#");
}

/* An http URL is a repository if its path ends with ".git". */
static bool add_source_is_git(const char *s)
{
    size_t end = add_source_path_end(s);

    if (add_source_begins(s, "git@") || add_source_begins(s, "git://") ||
        add_source_begins(s, "ssh://"))
        return true;
    return add_source_is_http(s) && end > 4 && strncmp(s + end - 4, ".git", 4) == 0;
}

enum add_source_kind add_source_kind(const char *source)
{
    if (add_source_is_git(source))
        return ADD_SOURCE_GIT;
    return add_source_is_http(source) ? ADD_SOURCE_URL : ADD_SOURCE_PATH;
}

/* ---- names ---- */

static int add_source_hex(char c)
{
    const char *digits = "0123456789abcdef", *at = c ? strchr(digits, c | ' ') : NULL;

    return at ? (int)(at - digits) : -1;
}

/* Decodes "%41" in place. False: a sequence is not valid, or is a NUL. */
static bool add_source_decode(char *s)
{
    char *to = s;

    for (; *s; s++) {
        int high, low;

        if (*s != '%') {
            *to++ = *s;
            continue;
        }
        high = add_source_hex(s[1]);
        low = high < 0 ? -1 : add_source_hex(s[2]);
        if (low < 0 || high + low == 0)
            return false;
        *to++ = (char)(high << 4 | low);
        s += 2;
    }
    *to = '\0';
    return true;
}

static bool add_source_is_plain(const char *url)
{
    for (; *url; url++)
        if ((unsigned char)*url <= ' ' || (unsigned char)*url >= 0x7f)
            return false;
    return true;
}

/* The last part that is not empty; "" if all are. Cuts slashes off the end of `path`. */
static const char *add_source_last_part(char *path)
{
    size_t len = strlen(path);
    char *slash;

    while (len && path[len - 1] == '/')
        path[--len] = '\0';
    slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

int add_source_file_name(const char *url, char **ret, struct err *err)
{
    const char *host = strstr(url, "://") + 3, *name;
    size_t host_len = strcspn(host, "/?#");
    _cleanup_free_ char *path = xstrndup(host + host_len, add_source_path_end(host + host_len));

    if (!host_len || strlen(url) > URL_MAX || !add_source_decode(path))
        return err_set(err, ERR_INVALID, "'%.200s': not a valid URL of a file", url);
    if (!add_source_is_plain(url)) {
        err_set(err, ERR_INVALID, "'%.200s': not a valid URL of a file", url);
        return err_hint(err, "Write blanks and characters beyond ASCII as '%%20'.");
    }
    name = add_source_last_part(path);
    if (!*name || STREQ(name, "."))
        name = unnamed;
    if (STREQ(name, "..") || strlen(name) > NAME_MAX)
        return err_set(err, ERR_INVALID, "'%.200s': its last part cannot be a file name", url);
    *ret = xstrdup(name);
    return 0;
}

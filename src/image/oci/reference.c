#include "image/oci/reference.h"

#include <ctype.h>
#include <stdbool.h>
#include <string.h>

#include "lib/base/image-name.h"
#include "lib/base/xalloc.h"

enum { TAG_MAX = 128 };

static const char path_chars[] = "abcdefghijklmnopqrstuvwxyz0123456789._-/";
static const char tag_chars[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

/* A colon before the last slash belongs to the registry's port. */
static const char *reference_find_tag(const char *name)
{
    const char *slash = strrchr(name, '/');

    return strchr(slash ? slash : name, ':');
}

static bool reference_path_is_valid(const char *s, size_t len)
{
    const char *registry = memchr(s, '/', len);
    const char *port = registry ? memchr(s, ':', (size_t)(registry - s)) : NULL;

    if (port) { /* "host:5000/…" */
        size_t digits = strspn(port + 1, "0123456789");

        if (digits == 0 || port + 1 + digits != registry ||
            strspn(s, path_chars) < (size_t)(port - s))
            return false;
        len -= (size_t)(registry + 1 - s);
        s = registry + 1;
    }
    if (len == 0 || strspn(s, path_chars) < len || !isalnum((unsigned char)*s) ||
        !isalnum((unsigned char)s[len - 1]))
        return false;
    for (size_t i = 1; i < len; i++)
        if (strchr("./", s[i]) && strchr("./", s[i - 1]))
            return false;
    return true;
}

static bool reference_tag_is_valid(const char *tag)
{
    size_t len = strlen(tag);

    return len > 0 && len <= TAG_MAX && strspn(tag, tag_chars) == len && !strchr(".-", *tag);
}

bool reference_is_host(const char *name)
{
    return STREQ(name, "host") || STREQ(name, "host:latest");
}

int reference_parse(const char *name, char **ret, struct err *err)
{
    const char *s = image_name_short(name), *tag = reference_find_tag(s);
    size_t len = tag ? (size_t)(tag - s) : strlen(s);

    /* ".." would do no harm here, but specs refuse it in every name. */
    if (strlen(name) > REFERENCE_MAX || strstr(s, "..") || !isalnum((unsigned char)*s) ||
        !reference_path_is_valid(s, len) || (tag && !reference_tag_is_valid(tag + 1))) {
        err_set(err, ERR_INVALID, "'%.100s' is not a valid image name", name);
        return err_hint(err, "Use lower-case letters and an optional tag, as in team/tool:1.2.");
    }
    if (reference_is_host(s))
        return err_set(err, ERR_INVALID,
                       "'host' stands for the programs of this machine and is not a stored image");
    *ret = tag ? xstrdup(s) : xasprintf("%s:latest", s);
    return 0;
}

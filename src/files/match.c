#include "files/match.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

/* One byte against "[…]" at p. NULL: no bracket expression begins here; else its end. */
static const char *files_match_class(const char *p, unsigned char c, bool *ret)
{
    const char *at = p + 1;
    bool negate = *at == '!' || *at == '^', found = false;

    at += negate;
    for (bool first = true; *at && (*at != ']' || first); first = false) {
        unsigned char from = (unsigned char)*at, to = from;

        if (from == '\\' && at[1])
            from = to = (unsigned char)*++at;
        if (at[1] == '-' && at[2] && at[2] != ']') {
            to = (unsigned char)at[2];
            at += 2;
        }
        found |= c >= from && c <= to;
        at++;
    }
    if (*at != ']')
        return NULL;
    *ret = found != negate && c != '/';
    return at + 1;
}

/* The end of the pattern's part that matches this byte, or NULL. */
static const char *files_match_one(const char *p, char c)
{
    const char *end;
    bool in = false;

    if (*p == '?')
        return c != '/' ? p + 1 : NULL;
    if (*p == '[' && (end = files_match_class(p, (unsigned char)c, &in)))
        return in ? end : NULL;
    if (*p == '\\' && p[1])
        p++;
    return *p && *p == c ? p + 1 : NULL;
}

/* `**` counts only as a whole name. */
static bool files_match_is_deep(const char *start, const char *p)
{
    return p[0] == '*' && p[1] == '*' && (p == start || p[-1] == '/') && (!p[2] || p[2] == '/');
}

/*
 * Each star is tried from left to right. A later `*` makes an earlier one final, and a later `**`
 * also a `**`, so two places to go back to are enough.
 */
static bool files_match_text(const char *p, const char *s)
{
    const char *star = NULL, *star_at = NULL, *deep = NULL, *deep_at = NULL, *start = p;

    for (;;) {
        const char *next;

        if (files_match_is_deep(start, p)) {
            p += 2;
            p += *p == '/'; /* also no folder at all */
            deep = p;
            deep_at = s;
            star = NULL;
            continue;
        }
        if (*p == '*') {
            star = ++p;
            star_at = s;
            continue;
        }
        if (!*s && !*p)
            return true;
        next = *s ? files_match_one(p, *s) : NULL;
        if (next) {
            p = next;
            s++;
        } else if (star && *star_at && *star_at != '/') {
            p = star;
            s = ++star_at;
        } else if (deep && *deep_at) {
            /* `**` ends where a name begins, unless it ends the pattern. */
            do
                deep_at++;
            while (*deep && *deep_at && deep_at[-1] != '/');
            if (*deep && !*deep_at)
                return false;
            p = deep;
            s = deep_at;
            star = NULL;
        } else {
            return false;
        }
    }
}

bool files_match_path(const char *glob, const char *rel, const char *name)
{
    return files_match_text(glob, strchr(glob, '/') ? rel : name);
}

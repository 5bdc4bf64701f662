/* Commands and environments of an exact size, for tests at a bound and one byte over it. */
#pragma once

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/command-size.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

/* `len` bytes: the prefix, then 'x'. */
static inline char *large_string(const char *prefix, size_t len)
{
    char *s = xmalloc(len + 1);

    memset(s, 'x', len);
    memcpy(s, prefix, MIN(strlen(prefix), len));
    s[len] = '\0';
    return s;
}

/* The string as a Dockerfile has it, where a line is shorter than 64 KiB. */
static inline char *large_folded(const char *s)
{
    struct buf b = BUF_INIT(4 << 20);

    for (size_t n; *s; s += n) {
        n = MIN(strlen(s), (size_t)60000);
        if (buf_appendf(&b, "%.*s%s", (int)n, s, s[n] ? "\\\n" : "") < 0)
            abort();
    }
    return buf_steal(&b);
}

/* Strings of the largest size and a shorter one, with command_size() == size. With `variables` each
 * is NAME=VALUE. A new strv. */
static inline char **large_command(size_t size, bool variables)
{
    struct strv_list l = {0};

    while (size) {
        size_t one = MIN(size, (size_t)COMMAND_STRING_MAX - 1 + COMMAND_STRING_COST);
        char prefix[16] = "";

        /* The rest must be enough for a string of its own. */
        if (size > one && size - one < 100)
            one -= 100;
        if (variables)
            snprintf(prefix, sizeof(prefix), "V%04zu=", l.n);
        strv_list_push(&l, large_string(prefix, one - COMMAND_STRING_COST));
        size -= one;
    }
    return l.v;
}

/*
 * Out of memory while composing a message ends the process, as everywhere else.
 */
#include "lib/base/err.h"

#include <errno.h>

#include "lib/base/xalloc.h"

/* clang-format off */
static const struct {
    const char *name;
    int http;
    int exit;
} codes[ERR_CODE_MAX] = {
    [ERR_NONE]         = { "none",         200, 0 },
    [ERR_SYSTEM]       = { "system",       500, 1 },
    [ERR_INVALID]      = { "invalid",      400, 2 },
    [ERR_UNAUTHORIZED] = { "unauthorized", 401, 5 },
    [ERR_DENIED]       = { "denied",       403, 5 },
    [ERR_NOT_FOUND]    = { "not_found",    404, 3 },
    [ERR_CONFLICT]     = { "conflict",     409, 4 },
    [ERR_LIMIT]        = { "limit",        429, 6 },
    [ERR_UNSUPPORTED]  = { "unsupported",  501, 7 },
    [ERR_ENGINE]       = { "engine",       502, 8 },
    [ERR_TIMEOUT]      = { "timeout",      504, 9 },
};
/* clang-format on */

void err_done(struct err *err)
{
    if (!err)
        return;
    free(err->msg);
    free(err->hint);
    free(err->part_name);
    *err = (struct err)ERR_INIT;
}

/* The innermost name is the most exact one. */
static void err_note_part(struct err *err, const char *text)
{
    static const struct {
        const char *words, *part;
    } parts[] = {
        {"field '", "field"},
        {"unknown field '", "field"},
        {"query parameter '", "parameter"},
        {"unknown query parameter '", "parameter"},
        {"header '", "header"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(parts) && !err->part; i++) {
        size_t len = strlen(parts[i].words);
        const char *end = strncmp(text, parts[i].words, len) == 0 ? strchr(text + len, '\'') : NULL;

        if (!end)
            continue;
        err->part = parts[i].part;
        err->part_name = xstrndup(text + len, (size_t)(end - text) - len);
    }
}

int err_setv(struct err *err, enum err_code code, const char *fmt, va_list ap)
{
    if (!err)
        return -(int)code;
    err_done(err);
    err->code = code;
    err->msg = xvasprintf(fmt, ap);
    err_note_part(err, err->msg);
    return -(int)code;
}

int err_set(struct err *err, enum err_code code, const char *fmt, ...)
{
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = err_setv(err, code, fmt, ap);
    va_end(ap);
    return r;
}

int err_sys(struct err *err, int errnum, const char *fmt, ...)
{
    va_list ap;
    char *what;

    if (!err)
        return -ERR_SYSTEM;
    va_start(ap, fmt);
    what = xvasprintf(fmt, ap);
    va_end(ap);
    err_set(err, ERR_SYSTEM, "%s: %s", what, strerror(errnum));
    err->errnum = errnum;
    free(what);
    return -ERR_SYSTEM;
}

int err_wrap(struct err *err, const char *fmt, ...)
{
    va_list ap;
    char *context, *inner;

    if (!err)
        return -ERR_SYSTEM;
    va_start(ap, fmt);
    context = xvasprintf(fmt, ap);
    va_end(ap);
    inner = err->msg;
    err_note_part(err, context);
    err->msg = xasprintf("%s: %s", context, inner ? inner : "");
    free(inner);
    free(context);
    return -(int)err->code;
}

int err_hint(struct err *err, const char *fmt, ...)
{
    va_list ap;

    if (!err)
        return -ERR_SYSTEM;
    free(err->hint);
    va_start(ap, fmt);
    err->hint = xvasprintf(fmt, ap);
    va_end(ap);
    return -(int)err->code;
}

int err_move(struct err *dst, struct err *src)
{
    int r = -(int)src->code;

    if (dst) {
        err_done(dst);
        *dst = *src;
        *src = (struct err)ERR_INIT;
    } else {
        err_done(src);
    }
    return r;
}

int err_copy(struct err *dst, const struct err *src)
{
    if (dst) {
        err_done(dst);
        dst->code = src->code;
        dst->errnum = src->errnum;
        dst->msg = src->msg ? xstrdup(src->msg) : NULL;
        dst->hint = src->hint ? xstrdup(src->hint) : NULL;
        dst->part = src->part;
        dst->part_name = src->part_name ? xstrdup(src->part_name) : NULL;
    }
    return -(int)src->code;
}

const char *err_code_name(enum err_code code)
{
    return (unsigned)code < ERR_CODE_MAX ? codes[code].name : "system";
}

enum err_code err_code_from_name(const char *name)
{
    for (int i = ERR_NONE + 1; i < ERR_CODE_MAX; i++)
        if (STREQ(codes[i].name, name))
            return (enum err_code)i;
    return ERR_SYSTEM;
}

int err_code_http(enum err_code code)
{
    return (unsigned)code < ERR_CODE_MAX ? codes[code].http : 500;
}

int err_code_exit(enum err_code code)
{
    return (unsigned)code < ERR_CODE_MAX ? codes[code].exit : 1;
}

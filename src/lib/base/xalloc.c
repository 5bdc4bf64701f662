#include "lib/base/xalloc.h"

#include <stdint.h>
#include <unistd.h>

static _noreturn_ void xalloc_out_of_memory(void)
{
    static const char msg[] = "out of memory\n";
    ssize_t r = write(STDERR_FILENO, msg, sizeof(msg) - 1);

    (void)r;
    _exit(1);
}

void *xmalloc(size_t size)
{
    void *p = malloc(size ? size : 1);

    if (!p)
        xalloc_out_of_memory();
    return p;
}

void *xcalloc(size_t n, size_t size)
{
    void *p = calloc(n ? n : 1, size ? size : 1);

    if (!p)
        xalloc_out_of_memory();
    return p;
}

void *xrealloc(void *p, size_t size)
{
    p = realloc(p, size ? size : 1);
    if (!p)
        xalloc_out_of_memory();
    return p;
}

void *xreallocarray(void *p, size_t n, size_t size)
{
    size_t total;

    if (__builtin_mul_overflow(n, size, &total))
        xalloc_out_of_memory();
    return xrealloc(p, total);
}

void *xmemdup(const void *p, size_t size)
{
    void *q = xmalloc(size);

    if (size)
        memcpy(q, p, size);
    return q;
}

char *xstrdup(const char *s)
{
    return xmemdup(s, strlen(s) + 1);
}

char *xstrndup(const char *s, size_t n)
{
    size_t len = strnlen(s, n);
    char *p = xmalloc(len + 1);

    memcpy(p, s, len);
    p[len] = '\0';
    return p;
}

char *xvasprintf(const char *fmt, va_list ap)
{
    char *s;

    if (vasprintf(&s, fmt, ap) < 0)
        xalloc_out_of_memory();
    return s;
}

char *xasprintf(const char *fmt, ...)
{
    va_list ap;
    char *s;

    va_start(ap, fmt);
    s = xvasprintf(fmt, ap);
    va_end(ap);
    return s;
}

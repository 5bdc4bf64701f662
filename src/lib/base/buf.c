#include "lib/base/buf.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/err.h"
#include "lib/base/xalloc.h"

void buf_done(struct buf *b)
{
    free(b->mem);
    b->mem = NULL;
    b->off = b->len = b->cap = 0;
}

void buf_wipe(struct buf *b)
{
    if (b->mem)
        explicit_bzero(b->mem, b->cap);
    buf_done(b);
}

void buf_clear(struct buf *b)
{
    b->off = b->len = 0;
    if (b->mem)
        b->mem[0] = '\0';
}

char *buf_reserve(struct buf *b, size_t n)
{
    size_t need;

    if (n > b->max || b->len > b->max - n)
        return NULL;
    need = b->len + n + 1;
    if (b->off && b->off + need > b->cap) {
        memmove(b->mem, b->mem + b->off, b->len);
        b->off = 0;
    }
    if (b->off + need > b->cap) {
        b->cap = MAX(need, MIN(b->cap * 2, b->max + 1));
        b->cap = MAX(b->cap, (size_t)64);
        b->mem = xrealloc(b->mem, b->cap);
    }
    return b->mem + b->off + b->len;
}

void buf_commit(struct buf *b, size_t n)
{
    assert(b->off + b->len + n < b->cap);
    b->len += n;
    b->mem[b->off + b->len] = '\0';
}

int buf_append(struct buf *b, const void *data, size_t len)
{
    char *p = buf_reserve(b, len);

    if (!p)
        return -ERR_LIMIT;
    if (len)
        memcpy(p, data, len);
    buf_commit(b, len);
    return 0;
}

int buf_append_str(struct buf *b, const char *s)
{
    return buf_append(b, s, strlen(s));
}

int buf_append_c(struct buf *b, char c)
{
    return buf_append(b, &c, 1);
}

int buf_appendv(struct buf *b, const char *fmt, va_list ap)
{
    va_list again;
    char *p;
    int n;

    va_copy(again, ap);
    n = vsnprintf(NULL, 0, fmt, again);
    va_end(again);
    if (n < 0)
        return -ERR_LIMIT;
    p = buf_reserve(b, (size_t)n);
    if (!p)
        return -ERR_LIMIT;
    vsnprintf(p, (size_t)n + 1, fmt, ap);
    buf_commit(b, (size_t)n);
    return 0;
}

int buf_appendf(struct buf *b, const char *fmt, ...)
{
    va_list ap;
    int r;

    va_start(ap, fmt);
    r = buf_appendv(b, fmt, ap);
    va_end(ap);
    return r;
}

void buf_consume(struct buf *b, size_t n)
{
    assert(n <= b->len);
    b->off += n;
    b->len -= n;
    if (b->len == 0)
        buf_clear(b);
}

void buf_truncate(struct buf *b, size_t n)
{
    assert(n <= b->len);
    b->len = n;
    if (b->mem)
        b->mem[b->off + n] = '\0';
}

char *buf_steal(struct buf *b)
{
    char *s;

    if (!b->mem)
        return xstrdup("");
    if (b->off)
        memmove(b->mem, b->mem + b->off, b->len + 1);
    s = b->mem;
    b->mem = NULL;
    b->off = b->len = b->cap = 0;
    return s;
}

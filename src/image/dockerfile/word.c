#include "image/dockerfile/word.h"

#include <string.h>

#include "lib/base/text.h"
#include "lib/base/xalloc.h"

size_t word_space(const char *s, size_t len)
{
    unsigned c;
    size_t n;

    if (!len)
        return 0;
    if (strchr("\t\n\v\f\r ", *s) && *s)
        return 1;
    if (!((unsigned char)*s & 0x80))
        return 0;
    n = text_utf8_next(s, len, &c);
    switch (n ? c : 0) {
    case 0x85:
    case 0xa0:
    case 0x1680:
    case 0x2028:
    case 0x2029:
    case 0x202f:
    case 0x205f:
    case 0x3000:
        return n;
    default:
        return n && c >= 0x2000 && c <= 0x200a ? n : 0;
    }
}

bool word_blank(char c)
{
    return c == '\t' || c == '\v' || c == '\f' || c == '\r' || c == ' ';
}

/* The length of the white-space character that ends at `end`, or 0. */
static size_t word_space_before(const char *s, size_t start, size_t end)
{
    for (size_t n = 1; n <= 3 && n <= end - start; n++)
        if (word_space(s + end - n, n) == n)
            return n;
    return 0;
}

void word_trim(const char *s, size_t *start, size_t *end)
{
    size_t n;

    while (*start < *end && (n = word_space(s + *start, *end - *start)))
        *start += n;
    while (*start < *end && (n = word_space_before(s, *start, *end)))
        *end -= n;
}

static void word_push(struct word_span **v, size_t *n, size_t start, size_t end)
{
    if (!(*n & (*n - 1))) /* grows at powers of two */
        *v = xreallocarray(*v, *n ? *n * 2 : 1, sizeof(**v));
    (*v)[(*n)++] = (struct word_span){start, end};
}

struct word_span *word_split(const char *s, size_t start, size_t end, size_t *n)
{
    struct word_span *v = NULL;

    *n = 0;
    for (size_t i = start; i < end;) {
        size_t from = i;

        while (i < end && !word_blank(s[i]))
            i++;
        word_push(&v, n, from, i);
        while (i < end && word_blank(s[i]))
            i++;
    }
    return v;
}

/* The offset after the word that begins at i. */
static size_t word_end(const char *s, size_t i, size_t end, char escape)
{
    char quote = 0;

    while (i < end && (quote || !word_space(s + i, end - i))) {
        if (s[i] == escape && quote != '\'')
            i++; /* the next character belongs to the word */
        else if (quote && s[i] == quote)
            quote = 0;
        else if (!quote && (s[i] == '\'' || s[i] == '"'))
            quote = s[i];
        if (i < end)
            i++;
    }
    return i;
}

struct word_span *word_split_quoted(const char *s, size_t start, size_t end, char escape, size_t *n)
{
    struct word_span *v = NULL;

    *n = 0;
    for (size_t i = start; i < end;) {
        size_t blank = word_space(s + i, end - i), from = i;

        if (blank) {
            i += blank;
            continue;
        }
        i = word_end(s, i, end, escape);
        word_push(&v, n, from, i);
    }
    return v;
}

/*
 * A pattern becomes a list of tokens. Matching keeps the set of tokens that can come next, so the
 * cost is the length of the pattern times the length of the path, for every pattern.
 */
#include "image/dockerfile/ignore.h"

#include <stdint.h>
#include <string.h>

#include "image/dockerfile/word.h"
#include "lib/base/macro.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"

enum ignore_token_type {
    TOKEN_CHAR,
    TOKEN_ANY,    /* ?: not a slash */
    TOKEN_CLASS,  /* [a-z] */
    TOKEN_STAR,   /* *: no slashes */
    TOKEN_DEEP,   /* begins a `**` that is followed by more: matches nothing, or … */
    TOKEN_INSIDE, /* … anything that ends with a slash */
    TOKEN_REST,   /* ** at the end, or right before text: anything */
};

struct ignore_token {
    enum ignore_token_type type;
    unsigned c;        /* of TOKEN_CHAR */
    const char *class; /* of TOKEN_CLASS: the text after the bracket; borrowed from the pattern */
};

struct ignore_pattern {
    char *text; /* owned */
    bool exception;
    struct ignore_token *tokens; /* owned */
    size_t n;
};

struct ignore {
    struct ignore_pattern *patterns;
    size_t n;
    bool exceptions;
};

void ignore_free(struct ignore *ig)
{
    if (!ig)
        return;
    for (size_t i = 0; i < ig->n; i++) {
        free(ig->patterns[i].text);
        free(ig->patterns[i].tokens);
    }
    free(ig->patterns);
    free(ig);
}

bool ignore_has_exceptions(const struct ignore *ig)
{
    return ig->exceptions;
}

/* The character at s. A byte that is not UTF-8 becomes a value above all characters. */
static size_t ignore_next_char(const char *s, unsigned *ret)
{
    size_t n = text_utf8_next(s, strnlen(s, 4), ret);

    if (n)
        return n;
    *ret = 0x110000u + (unsigned char)*s;
    return 1;
}

/* ---- reading patterns ---- */

/* The text after the bracket that closes the class at s; NULL: the class is malformed. */
static const char *ignore_class_end(const char *s)
{
    unsigned c;
    size_t n = 0;

    s += *s == '^';
    for (; *s && (*s != ']' || !n); n++) {
        if (*s == ']' || *s == '-')
            return NULL;
        s += *s == '\\';
        if (!*s)
            return NULL;
        s += ignore_next_char(s, &c);
        if (*s != '-')
            continue;
        s += 1 + (s[1] == '\\');
        if (!*s || *s == ']')
            return NULL;
        s += ignore_next_char(s, &c);
    }
    return *s == ']' ? s + 1 : NULL;
}

static void ignore_push(struct ignore_pattern *p, enum ignore_token_type type, unsigned c,
                        const char *class)
{
    p->tokens[p->n++] = (struct ignore_token){type, c, class};
}

/* Reads the stars at s. Returns the text after them. */
static const char *ignore_read_stars(struct ignore_pattern *p, const char *s)
{
    bool first = s == p->text;

    if (s[1] != '*') {
        ignore_push(p, TOKEN_STAR, 0, NULL);
        return s + 1;
    }
    s += 2;
    /* "**x" at the beginning matches every path that ends in x, with or without a slash. */
    if (!*s || (first && *s != '/')) {
        ignore_push(p, TOKEN_REST, 0, NULL);
        return s;
    }
    s += *s == '/';
    if (!*s) {
        ignore_push(p, TOKEN_REST, 0, NULL);
        return s;
    }
    ignore_push(p, TOKEN_DEEP, 0, NULL);
    ignore_push(p, TOKEN_INSIDE, 0, NULL);
    return s;
}

static bool ignore_compile(struct ignore_pattern *p)
{
    const char *s = p->text, *end;
    unsigned c;

    p->tokens = xcalloc(strlen(s) * 2 + 1, sizeof(*p->tokens));
    while (*s) {
        if (*s == '*') {
            s = ignore_read_stars(p, s);
            continue;
        }
        if (*s == '[') {
            end = ignore_class_end(s + 1);
            if (!end)
                return false;
            ignore_push(p, TOKEN_CLASS, 0, s + 1);
            s = end;
            continue;
        }
        if (*s == '\\' && !*++s)
            return false;
        if (*s == '?' && (s == p->text || s[-1] != '\\')) {
            ignore_push(p, TOKEN_ANY, 0, NULL);
            s++;
            continue;
        }
        s += ignore_next_char(s, &c);
        ignore_push(p, TOKEN_CHAR, c, NULL);
    }
    return true;
}

/* The pattern without ".", ".." and doubled slashes, relative to the context; new. */
static char *ignore_clean(const char *s, size_t len)
{
    _cleanup_strv_ char **parts = NULL;

    for (size_t i = 0, n; i < len; i += n + 1) {
        const char *slash = memchr(s + i, '/', len - i);

        n = slash ? (size_t)(slash - s) - i : len - i;
        if (n == 0 || (n == 1 && s[i] == '.'))
            continue;
        if (n == 2 && !memcmp(s + i, "..", 2))
            strv_pop(parts);
        else
            strv_push(&parts, xstrndup(s + i, n));
    }
    return parts && *parts ? strv_join(parts, "/") : xstrdup(".");
}

static int ignore_add_pattern(struct ignore *ig, const char *s, size_t start, size_t end,
                              struct err *err)
{
    struct ignore_pattern *p;
    bool exception;

    word_trim(s, &start, &end);
    exception = start < end && s[start] == '!';
    start += exception;
    word_trim(s, &start, &end);
    if (start == end)
        return exception ? err_set(err, ERR_INVALID, "'!' without a pattern") : 0;
    if (ig->n == IGNORE_PATTERNS_MAX || end - start > IGNORE_PATTERN_MAX)
        return err_set(
            err, ERR_LIMIT,
            "too many patterns, or a pattern is too long (the limits are %d patterns of %d bytes)",
            IGNORE_PATTERNS_MAX, IGNORE_PATTERN_MAX);
    if (!(ig->n & (ig->n - 1)))
        ig->patterns = xreallocarray(ig->patterns, ig->n ? ig->n * 2 : 1, sizeof(*ig->patterns));
    p = &ig->patterns[ig->n++];
    *p = (struct ignore_pattern){.text = ignore_clean(s + start, end - start),
                                 .exception = exception};
    ig->exceptions |= exception;
    if (!ignore_compile(p))
        return err_set(err, ERR_INVALID, "'%.64s' is not a valid pattern", p->text);
    return 0;
}

int ignore_from_list(char *const *patterns, struct ignore **ret, struct err *err)
{
    _cleanup_(ignore_freep) struct ignore *ig = xnew0(struct ignore);

    for (; patterns && *patterns; patterns++) {
        int r = ignore_add_pattern(ig, *patterns, 0, strlen(*patterns), err);

        if (r < 0)
            return r;
    }
    *ret = TAKE_PTR(ig);
    return 0;
}

int ignore_parse(const char *text, size_t len, struct ignore **ret, struct err *err)
{
    _cleanup_(ignore_freep) struct ignore *ig = xnew0(struct ignore);
    unsigned line = 1;

    if (len > IGNORE_SIZE_MAX)
        return err_set(err, ERR_LIMIT, "the file has %zu bytes (the limit is %d)", len,
                       IGNORE_SIZE_MAX);
    if (memchr(text, 0, len))
        return err_set(err, ERR_INVALID, "the file contains a NUL byte");
    for (size_t i = len >= 3 && !memcmp(text, "\xef\xbb\xbf", 3) ? 3 : 0; i < len; line++) {
        const char *newline = memchr(text + i, '\n', len - i);
        size_t end = newline ? (size_t)(newline - text) : len;
        int r = text[i] == '#' ? 0 : ignore_add_pattern(ig, text, i, end, err);

        if (r < 0)
            return err_wrap(err, "line %u", line);
        i = end + 1;
    }
    *ret = TAKE_PTR(ig);
    return 0;
}

/* ---- matching ---- */

static bool ignore_in_class(const char *s, unsigned c)
{
    bool negated = *s == '^', found = false;
    unsigned from, to;

    s += negated;
    do {
        s += *s == '\\';
        s += ignore_next_char(s, &from);
        to = from;
        if (*s == '-') {
            s += 1 + (s[1] == '\\');
            s += ignore_next_char(s, &to);
        }
        found |= c >= from && c <= to;
    } while (*s != ']');
    return found != negated;
}

/* Adds token i, and the tokens that can be reached from it without a character. */
static void ignore_reach(const struct ignore_pattern *p, uint8_t *set, size_t i)
{
    while (i <= p->n && !set[i]) {
        set[i] = 1;
        if (i == p->n)
            return;
        if (p->tokens[i].type == TOKEN_DEEP)
            i += 2;
        else if (p->tokens[i].type == TOKEN_STAR || p->tokens[i].type == TOKEN_REST)
            i++;
        else
            return;
    }
}

static void ignore_step(const struct ignore_pattern *p, size_t i, unsigned c, uint8_t *next)
{
    const struct ignore_token *t = &p->tokens[i];

    switch (t->type) {
    case TOKEN_CHAR:
        if (t->c == c)
            ignore_reach(p, next, i + 1);
        break;
    case TOKEN_ANY:
        if (c != '/')
            ignore_reach(p, next, i + 1);
        break;
    case TOKEN_CLASS:
        if (ignore_in_class(t->class, c))
            ignore_reach(p, next, i + 1);
        break;
    case TOKEN_STAR:
        if (c != '/')
            ignore_reach(p, next, i);
        break;
    case TOKEN_DEEP:
    case TOKEN_INSIDE:
        next[t->type == TOKEN_DEEP ? i + 1 : i] = 1;
        if (c == '/')
            ignore_reach(p, next, t->type == TOKEN_DEEP ? i + 2 : i + 1);
        break;
    case TOKEN_REST:
        ignore_reach(p, next, i);
        break;
    }
}

static bool ignore_fits(const struct ignore_pattern *p, const char *path, uint8_t *now,
                        uint8_t *next)
{
    unsigned c;

    memset(now, 0, p->n + 1);
    ignore_reach(p, now, 0);
    for (const char *s = path; *s;) {
        uint8_t *swap = now;

        /* A parent folder that matches is enough. */
        if (*s == '/' && s > path && now[p->n])
            return true;
        s += ignore_next_char(s, &c);
        memset(next, 0, p->n + 1);
        for (size_t i = 0; i < p->n; i++)
            if (now[i])
                ignore_step(p, i, c, next);
        now = next;
        next = swap;
    }
    return now[p->n];
}

bool ignore_matches(const struct ignore *ig, const char *path)
{
    uint8_t *sets = xmalloc(2 * (IGNORE_PATTERN_MAX * 2 + 2));
    bool matched = false;

    for (size_t i = 0; i < ig->n; i++) {
        const struct ignore_pattern *p = &ig->patterns[i];

        if (p->exception == matched &&
            ignore_fits(p, path, sets, sets + IGNORE_PATTERN_MAX * 2 + 2))
            matched = !p->exception;
    }
    free(sets);
    return matched;
}

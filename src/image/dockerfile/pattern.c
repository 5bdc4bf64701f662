/*
 * Pattern and value become arrays of characters. To match a suffix, both arrays are reversed and
 * matched as a prefix. The matcher remembers the positions at which it has failed, so that the cost
 * is at most the length of the pattern times the length of the value.
 */
#include "image/dockerfile/pattern.h"

#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"

enum {
    PATTERN_CELLS_MAX = 32 << 20,
    PATTERN_TOKENS_MAX = 4096, /* also the depth of the matcher */
};

enum pattern_token_type { TOKEN_CHAR, TOKEN_ANY, TOKEN_STAR };

struct pattern_token {
    enum pattern_token_type type;
    const char *s; /* borrowed from the text */
    size_t len;
};

struct pattern_tokens {
    struct pattern_token *v; /* owned */
    size_t n;
};

static void pattern_tokens_done(struct pattern_tokens *t)
{
    free(t->v);
}

static size_t pattern_char_len(const char *s)
{
    unsigned c;
    size_t n = text_utf8_next(s, strlen(s) < 4 ? strlen(s) : 4, &c);

    return n ? n : 1;
}

static void pattern_push(struct pattern_tokens *t, enum pattern_token_type type, const char *s,
                         size_t len)
{
    if (!(t->n & (t->n - 1)))
        t->v = xreallocarray(t->v, t->n ? t->n * 2 : 1, sizeof(*t->v));
    t->v[t->n++] = (struct pattern_token){type, s, len};
}

static int pattern_read(const char *s, struct pattern_tokens *ret, struct err *err)
{
    for (size_t len; *s; s += len) {
        len = 1;
        if (*s == '\\') {
            if (s[1] == '}' || s[1] == '/') /* escaped only because of the ${} around it */
                continue;
            if (!s[1] || !strchr("*?\\", s[1]))
                return err_set(err, ERR_INVALID, "invalid escape '\\%.*s' in a pattern",
                               s[1] ? (int)pattern_char_len(s + 1) : 0, s + 1);
            pattern_push(ret, TOKEN_CHAR, s + 1, 1);
            len = 2;
        } else if (*s == '*') {
            if (!ret->n || ret->v[ret->n - 1].type != TOKEN_STAR)
                pattern_push(ret, TOKEN_STAR, s, 1);
        } else if (*s == '?') {
            pattern_push(ret, TOKEN_ANY, s, 1);
        } else {
            len = pattern_char_len(s);
            pattern_push(ret, TOKEN_CHAR, s, len);
        }
    }
    if (ret->n > PATTERN_TOKENS_MAX)
        return err_set(err, ERR_LIMIT, "a pattern has %zu characters (the limit is %d)", ret->n,
                       PATTERN_TOKENS_MAX);
    return 0;
}

static void pattern_reverse(struct pattern_tokens *t)
{
    for (size_t i = 0; i < t->n / 2; i++) {
        struct pattern_token swap = t->v[i];

        t->v[i] = t->v[t->n - 1 - i];
        t->v[t->n - 1 - i] = swap;
    }
}

struct pattern_matcher {
    struct pattern_tokens pattern, value;
    bool greedy;
    unsigned char *failed; /* owned: a bit for each pair of positions */
};

static void pattern_matcher_done(struct pattern_matcher *m)
{
    pattern_tokens_done(&m->pattern);
    pattern_tokens_done(&m->value);
    free(m->failed);
}

static int pattern_matcher_init(struct pattern_matcher *m, const char *pattern, const char *value,
                                bool greedy, struct err *err)
{
    int r;

    *m = (struct pattern_matcher){.greedy = greedy};
    r = pattern_read(pattern, &m->pattern, err);
    if (r < 0)
        return r;
    for (size_t len; *value; value += len) {
        len = pattern_char_len(value);
        pattern_push(&m->value, TOKEN_CHAR, value, len);
    }
    if ((m->pattern.n + 1) > PATTERN_CELLS_MAX / (m->value.n + 1))
        return err_set(err, ERR_LIMIT, "a pattern of %zu characters is too long for a value of %zu",
                       m->pattern.n, m->value.n);
    m->failed = xcalloc((m->pattern.n + 1) * (m->value.n + 1) / 8 + 1, 1);
    return 0;
}

static bool pattern_is_newline(const struct pattern_token *t)
{
    return t->len == 1 && *t->s == '\n';
}

static bool pattern_fits(const struct pattern_token *pattern, const struct pattern_token *c)
{
    if (pattern->type != TOKEN_CHAR)
        return !pattern_is_newline(c);
    return pattern->len == c->len && !memcmp(pattern->s, c->s, c->len);
}

static bool pattern_has_failed(const struct pattern_matcher *m, size_t p, size_t v)
{
    size_t cell = p * (m->value.n + 1) + v;

    return m->failed[cell / 8] & (1 << cell % 8);
}

static void pattern_set_failed(struct pattern_matcher *m, size_t p, size_t v)
{
    size_t cell = p * (m->value.n + 1) + v;

    m->failed[cell / 8] |= (unsigned char)(1 << cell % 8);
}

static bool pattern_match_from(struct pattern_matcher *m, size_t p, size_t v, size_t *ret_end);

/*
 * Tries the star at p with each possible number of characters, the longest or the shortest first. A
 * star that has failed at a position also fails at all later ones. So only the positions before the
 * first known failure are tried, and each position is tried once.
 */
static bool pattern_match_star(struct pattern_matcher *m, size_t p, size_t v, size_t *ret_end)
{
    size_t n = 0;

    while (v + n <= m->value.n && !pattern_has_failed(m, p, v + n)) {
        n++;
        if (v + n > m->value.n || pattern_is_newline(&m->value.v[v + n - 1]))
            break;
    }
    for (size_t i = 0; i < n; i++)
        if (pattern_match_from(m, p + 1, m->greedy ? v + n - 1 - i : v + i, ret_end))
            return true;
    for (size_t i = 0; i < n; i++)
        pattern_set_failed(m, p, v + i);
    return false;
}

static bool pattern_match_from(struct pattern_matcher *m, size_t p, size_t v, size_t *ret_end)
{
    size_t p0 = p, v0 = v;
    bool found;

    if (pattern_has_failed(m, p, v))
        return false;
    while (p < m->pattern.n && m->pattern.v[p].type != TOKEN_STAR && v < m->value.n &&
           pattern_fits(&m->pattern.v[p], &m->value.v[v])) {
        p++;
        v++;
    }
    if (p == m->pattern.n) {
        *ret_end = v;
        return true;
    }
    found = m->pattern.v[p].type == TOKEN_STAR && pattern_match_star(m, p, v, ret_end);
    if (!found)
        pattern_set_failed(m, p0, v0);
    return found;
}

static int pattern_append_chars(struct buf *b, const struct pattern_tokens *value, size_t from,
                                size_t to)
{
    for (size_t i = from; i < to; i++)
        if (buf_append(b, value->v[i].s, value->v[i].len) < 0)
            return -ERR_LIMIT;
    return 0;
}

static int pattern_too_long(int r, struct err *err)
{
    return r < 0 ? err_set(err, ERR_LIMIT, "the value of a substitution is too long") : 0;
}

int pattern_trim_prefix(const char *pattern, const char *value, bool greedy, struct buf *ret,
                        struct err *err)
{
    _cleanup_(pattern_matcher_done) struct pattern_matcher m;
    size_t end = 0;
    int r = pattern_matcher_init(&m, pattern, value, greedy, err);

    if (r < 0)
        return r;
    if (!pattern_match_from(&m, 0, 0, &end))
        end = 0;
    return pattern_too_long(pattern_append_chars(ret, &m.value, end, m.value.n), err);
}

int pattern_trim_suffix(const char *pattern, const char *value, bool greedy, struct buf *ret,
                        struct err *err)
{
    _cleanup_(pattern_matcher_done) struct pattern_matcher m;
    size_t end = 0;
    int r = pattern_matcher_init(&m, pattern, value, greedy, err);

    if (r < 0)
        return r;
    pattern_reverse(&m.pattern);
    pattern_reverse(&m.value);
    if (!pattern_match_from(&m, 0, 0, &end))
        end = 0;
    pattern_reverse(&m.value);
    return pattern_too_long(pattern_append_chars(ret, &m.value, 0, m.value.n - end), err);
}

/* An empty match right after another match does not count, as in Go's regular expressions. */
int pattern_replace(const char *pattern, const char *value, const char *with, bool all,
                    struct buf *ret, struct err *err)
{
    _cleanup_(pattern_matcher_done) struct pattern_matcher m;
    size_t at = 0, copied = 0, end, last = (size_t)-1;
    int r = pattern_matcher_init(&m, pattern, value, true, err);

    if (r < 0)
        return r;
    while (at <= m.value.n) {
        if (!pattern_match_from(&m, 0, at, &end) || (end == at && at == last)) {
            at++;
            continue;
        }
        if (pattern_append_chars(ret, &m.value, copied, at) < 0 || buf_append_str(ret, with) < 0)
            return pattern_too_long(-ERR_LIMIT, err);
        copied = last = end;
        at = end > at ? end : at + 1;
        if (!all)
            break;
    }
    return pattern_too_long(pattern_append_chars(ret, &m.value, copied, m.value.n), err);
}

/*
 * Pattern and value become arrays of characters, which may be turned round: the suffix of a value
 * is the prefix of its mirror image. The matcher remembers where it has failed, so that no pattern
 * costs more than its length times that of the value.
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

enum token_type { TOKEN_CHAR, TOKEN_ANY, TOKEN_STAR };

struct token {
    enum token_type type;
    const char *s; /* borrowed from the text */
    size_t len;
};

struct tokens {
    struct token *v; /* owned */
    size_t n;
};

static void tokens_done(struct tokens *t)
{
    free(t->v);
}

static size_t char_len(const char *s)
{
    unsigned c;
    size_t n = text_utf8_next(s, strlen(s) < 4 ? strlen(s) : 4, &c);

    return n ? n : 1;
}

static void push(struct tokens *t, enum token_type type, const char *s, size_t len)
{
    if (!(t->n & (t->n - 1)))
        t->v = xreallocarray(t->v, t->n ? t->n * 2 : 1, sizeof(*t->v));
    t->v[t->n++] = (struct token){type, s, len};
}

static void read_value(const char *s, struct tokens *ret)
{
    for (size_t len; *s; s += len) {
        len = char_len(s);
        push(ret, TOKEN_CHAR, s, len);
    }
}

static int read_pattern(const char *s, struct tokens *ret, struct err *err)
{
    for (size_t len; *s; s += len) {
        len = 1;
        if (*s == '\\') {
            if (s[1] == '}' || s[1] == '/') /* only escaped because of the ${} around it */
                continue;
            if (!s[1] || !strchr("*?\\", s[1]))
                return err_set(err, ERR_INVALID, "invalid escape '\\%.*s' in a pattern",
                               s[1] ? (int)char_len(s + 1) : 0, s + 1);
            push(ret, TOKEN_CHAR, s + 1, 1);
            len = 2;
        } else if (*s == '*') {
            if (!ret->n || ret->v[ret->n - 1].type != TOKEN_STAR)
                push(ret, TOKEN_STAR, s, 1);
        } else if (*s == '?') {
            push(ret, TOKEN_ANY, s, 1);
        } else {
            len = char_len(s);
            push(ret, TOKEN_CHAR, s, len);
        }
    }
    if (ret->n > PATTERN_TOKENS_MAX)
        return err_set(err, ERR_LIMIT, "a pattern has %zu characters; %d are allowed", ret->n,
                       PATTERN_TOKENS_MAX);
    return 0;
}

static void turn(struct tokens *t)
{
    for (size_t i = 0; i < t->n / 2; i++) {
        struct token swap = t->v[i];

        t->v[i] = t->v[t->n - 1 - i];
        t->v[t->n - 1 - i] = swap;
    }
}

struct matcher {
    struct tokens pattern, value;
    bool greedy;
    unsigned char *failed; /* owned: a bit for each pair of places */
};

static void matcher_done(struct matcher *m)
{
    tokens_done(&m->pattern);
    tokens_done(&m->value);
    free(m->failed);
}

static int matcher_init(struct matcher *m, const char *pattern, const char *value, bool greedy,
                        struct err *err)
{
    int r;

    *m = (struct matcher){.greedy = greedy};
    r = read_pattern(pattern, &m->pattern, err);
    if (r < 0)
        return r;
    read_value(value, &m->value);
    if ((m->pattern.n + 1) > PATTERN_CELLS_MAX / (m->value.n + 1))
        return err_set(err, ERR_LIMIT, "a pattern of %zu characters is too long for a value of %zu",
                       m->pattern.n, m->value.n);
    m->failed = xcalloc((m->pattern.n + 1) * (m->value.n + 1) / 8 + 1, 1);
    return 0;
}

static bool is_newline(const struct token *t)
{
    return t->len == 1 && *t->s == '\n';
}

static bool fits(const struct token *pattern, const struct token *c)
{
    if (pattern->type != TOKEN_CHAR)
        return !is_newline(c);
    return pattern->len == c->len && !memcmp(pattern->s, c->s, c->len);
}

static bool has_failed(const struct matcher *m, size_t p, size_t v)
{
    size_t cell = p * (m->value.n + 1) + v;

    return m->failed[cell / 8] & (1 << cell % 8);
}

static void set_failed(struct matcher *m, size_t p, size_t v)
{
    size_t cell = p * (m->value.n + 1) + v;

    m->failed[cell / 8] |= (unsigned char)(1 << cell % 8);
}

static bool match_from(struct matcher *m, size_t p, size_t v, size_t *ret_end);

/*
 * The star at p: as many characters as it can take, tried in the order that is asked for. A star
 * that has failed at a place has failed at all later ones, so only those before the first known
 * failure are tried, and all that were tried become known: each place costs once.
 */
static bool match_star(struct matcher *m, size_t p, size_t v, size_t *ret_end)
{
    size_t n = 0;

    while (v + n <= m->value.n && !has_failed(m, p, v + n)) {
        n++;
        if (v + n > m->value.n || is_newline(&m->value.v[v + n - 1]))
            break;
    }
    for (size_t i = 0; i < n; i++)
        if (match_from(m, p + 1, m->greedy ? v + n - 1 - i : v + i, ret_end))
            return true;
    for (size_t i = 0; i < n; i++)
        set_failed(m, p, v + i);
    return false;
}

static bool match_from(struct matcher *m, size_t p, size_t v, size_t *ret_end)
{
    size_t p0 = p, v0 = v;
    bool found;

    if (has_failed(m, p, v))
        return false;
    while (p < m->pattern.n && m->pattern.v[p].type != TOKEN_STAR && v < m->value.n &&
           fits(&m->pattern.v[p], &m->value.v[v])) {
        p++;
        v++;
    }
    if (p == m->pattern.n) {
        *ret_end = v;
        return true;
    }
    found = m->pattern.v[p].type == TOKEN_STAR && match_star(m, p, v, ret_end);
    if (!found)
        set_failed(m, p0, v0);
    return found;
}

static int append_chars(struct buf *b, const struct tokens *value, size_t from, size_t to)
{
    for (size_t i = from; i < to; i++)
        if (buf_append(b, value->v[i].s, value->v[i].len) < 0)
            return -ERR_LIMIT;
    return 0;
}

static int too_long(int r, struct err *err)
{
    return r < 0 ? err_set(err, ERR_LIMIT, "the value of a substitution is too long") : 0;
}

int pattern_trim_prefix(const char *pattern, const char *value, bool greedy, struct buf *ret,
                        struct err *err)
{
    _cleanup_(matcher_done) struct matcher m;
    size_t end = 0;
    int r = matcher_init(&m, pattern, value, greedy, err);

    if (r < 0)
        return r;
    if (!match_from(&m, 0, 0, &end))
        end = 0;
    return too_long(append_chars(ret, &m.value, end, m.value.n), err);
}

int pattern_trim_suffix(const char *pattern, const char *value, bool greedy, struct buf *ret,
                        struct err *err)
{
    _cleanup_(matcher_done) struct matcher m;
    size_t end = 0;
    int r = matcher_init(&m, pattern, value, greedy, err);

    if (r < 0)
        return r;
    turn(&m.pattern);
    turn(&m.value);
    if (!match_from(&m, 0, 0, &end))
        end = 0;
    turn(&m.value);
    return too_long(append_chars(ret, &m.value, 0, m.value.n - end), err);
}

/* A match of nothing right behind another match does not count, as in Go's regular expressions. */
int pattern_replace(const char *pattern, const char *value, const char *with, bool all,
                    struct buf *ret, struct err *err)
{
    _cleanup_(matcher_done) struct matcher m;
    size_t at = 0, copied = 0, end, last = (size_t)-1;
    int r = matcher_init(&m, pattern, value, true, err);

    if (r < 0)
        return r;
    while (at <= m.value.n && r >= 0) {
        if (!match_from(&m, 0, at, &end) || (end == at && at == last)) {
            at++;
            continue;
        }
        r = append_chars(ret, &m.value, copied, at);
        if (r >= 0)
            r = buf_append_str(ret, with);
        copied = last = end;
        at = end > at ? end : at + 1;
        if (!all)
            break;
    }
    if (r >= 0)
        r = append_chars(ret, &m.value, copied, m.value.n);
    return too_long(r, err);
}

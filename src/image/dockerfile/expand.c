/*
 * Reads the text in one pass. The result is stored twice: as a whole, and as words between unquoted
 * blanks, which only expand_words() returns. Both are needed because heredocs are found among the
 * words of a line that must otherwise stay as written.
 */
#include "image/dockerfile/expand.h"

#include <ctype.h>
#include <string.h>

#include "image/dockerfile/pattern.h"
#include "image/dockerfile/word.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"

struct expand_lexer {
    const struct expand *x;
    const char *s; /* borrowed, NUL-terminated: the rest of the text */
    unsigned depth;
    bool raw_escapes;
};

/* The result of the lexer. */
struct expand_result {
    struct buf text;
    struct buf word; /* the current word */
    bool in_word;    /* there is a current word; empty quotes make none, as in BuildKit */
    char **words;    /* owned */
};

#define RESULT_INIT                                                                                \
    {                                                                                              \
        .text = BUF_INIT(EXPAND_RESULT_MAX), .word = BUF_INIT(EXPAND_RESULT_MAX)                   \
    }

static void expand_result_done(struct expand_result *r)
{
    buf_done(&r->text);
    buf_done(&r->word);
    strv_free(r->words);
}

static int expand_too_long(struct err *err)
{
    return err_set(err, ERR_LIMIT, "an expanded word is longer than %d bytes", EXPAND_RESULT_MAX);
}

static void expand_end_word(struct expand_result *r)
{
    if (r->word.len)
        strv_push(&r->words, buf_steal(&r->word));
    r->in_word = false;
}

/* Adds n bytes to the current word; blanks among them do not end it. */
static int expand_add_raw(struct expand_result *r, const char *s, size_t n, struct err *err)
{
    r->in_word = true;
    if (buf_append(&r->text, s, n) < 0 || buf_append(&r->word, s, n) < 0)
        return expand_too_long(err);
    return 0;
}

/* Adds n bytes; blanks among them end words. */
static int expand_add(struct expand_result *r, const char *s, size_t n, struct err *err)
{
    for (size_t i = 0, len; i < n; i += len) {
        size_t blank = word_space(s + i, n - i);

        len = blank ? blank : 1;
        if (!blank) {
            if (expand_add_raw(r, s + i, 1, err) < 0)
                return -err->code;
            continue;
        }
        if (buf_append(&r->text, s + i, len) < 0)
            return expand_too_long(err);
        if (r->in_word)
            expand_end_word(r);
    }
    return 0;
}

static size_t expand_char_len(const char *s)
{
    unsigned c;
    size_t n = *s ? text_utf8_next(s, strnlen(s, 4), &c) : 0;

    return n ? n : 1;
}

static bool expand_has(const struct expand_lexer *lx, unsigned flag)
{
    return lx->x->flags & flag;
}

static int expand_read_until(struct expand_lexer *lx, char stop, bool raw_escapes, bool pattern,
                             struct expand_result *ret, struct err *err);
static int expand_read_dollar(struct expand_lexer *lx, struct buf *ret, struct err *err);

/* ---- quotes ---- */

/* pattern: the result is read as a pattern, so escape characters in quotes are doubled. */
static int expand_read_single(struct expand_lexer *lx, bool pattern, struct buf *ret,
                              struct err *err)
{
    const char *end = strchr(lx->s + 1, '\'');
    bool raw = expand_has(lx, EXPAND_RAW_QUOTES);

    if (!end)
        return err_set(err, ERR_INVALID, "a single quote (') is not closed");
    if (raw && buf_append_c(ret, '\'') < 0)
        return expand_too_long(err);
    for (const char *p = lx->s + 1; p < end; p++) {
        if (pattern && *p == lx->x->escape && buf_append_c(ret, *p) < 0)
            return expand_too_long(err);
        if (buf_append_c(ret, *p) < 0)
            return expand_too_long(err);
    }
    if (raw && buf_append_c(ret, '\'') < 0)
        return expand_too_long(err);
    lx->s = end + 1;
    return 0;
}

/* The escape character at lx->s, in double quotes: it escapes the quote, the dollar and itself. */
static int expand_read_escaped(struct expand_lexer *lx, bool pattern, struct buf *ret)
{
    char escape = *lx->s++;
    int r = 0;

    if (!*lx->s)
        return 0;
    if (*lx->s == '"' || *lx->s == '$' || *lx->s == escape) {
        if (lx->raw_escapes)
            r = buf_append_c(ret, escape);
        return r < 0 ? r : buf_append_c(ret, *lx->s++);
    }
    if (lx->raw_escapes && (!expand_has(lx, EXPAND_RAW_QUOTES) || pattern))
        r = buf_append_c(ret, escape);
    return r < 0 ? r : buf_append_c(ret, escape);
}

static int expand_read_double(struct expand_lexer *lx, bool pattern, struct buf *ret,
                              struct err *err)
{
    bool raw = expand_has(lx, EXPAND_RAW_QUOTES);
    int r;

    if (raw && buf_append_c(ret, '"') < 0)
        return expand_too_long(err);
    lx->s++;
    while (*lx->s && *lx->s != '"') {
        if (*lx->s == '$') {
            r = expand_read_dollar(lx, ret, err);
            if (r < 0)
                return r;
            continue;
        }
        r = *lx->s == lx->x->escape ? expand_read_escaped(lx, pattern, ret)
                                    : buf_append_c(ret, *lx->s++);
        if (r < 0)
            return expand_too_long(err);
    }
    if (!*lx->s)
        return err_set(err, ERR_INVALID, "a double quote (\") is not closed");
    lx->s++;
    if (raw && buf_append_c(ret, '"') < 0)
        return expand_too_long(err);
    return 0;
}

/* ---- variables ---- */

/* Reads a name, a number, or one special parameter of a shell; "" if there is none. New. */
static char *expand_read_name(struct expand_lexer *lx)
{
    const char *start = lx->s;

    if (isdigit((unsigned char)*lx->s)) {
        while (isdigit((unsigned char)*lx->s))
            lx->s++;
    } else if (*lx->s && strchr("@*#?-$!", *lx->s)) {
        lx->s++;
    } else {
        while (isalnum((unsigned char)*lx->s) || *lx->s == '_' || (unsigned char)*lx->s >= 0x80)
            lx->s++;
    }
    return xstrndup(start, (size_t)(lx->s - start));
}

/* Reads the text before `stop` and expands its variables. */
static int expand_read_operand(struct expand_lexer *lx, char stop, bool raw_escapes, bool pattern,
                               char **ret, struct err *err)
{
    _cleanup_(expand_result_done) struct expand_result word = RESULT_INIT;
    int r = expand_read_until(lx, stop, raw_escapes, pattern, &word, err);

    if (r < 0 && !*lx->s && err->code == ERR_INVALID) {
        err_done(err);
        return err_set(err, ERR_INVALID, "'%c' is missing after '${'", stop);
    }
    if (r < 0)
        return r;
    *ret = buf_steal(&word.text);
    return 0;
}

static int expand_put(struct buf *ret, const char *s, struct err *err)
{
    return buf_append_str(ret, s) < 0 ? expand_too_long(err) : 0;
}

/* ${name-word}, ${name+word}, ${name?word}, also with a colon; op is '-', '+' or '?'. */
static int expand_apply_default(const char *name, const char *value, char op, bool colon,
                                const char *word, struct buf *ret, struct err *err)
{
    bool missing = !value || (colon && !*value);

    if (op == '-')
        return expand_put(ret, missing ? word : value, err);
    if (op == '+')
        return missing ? 0 : expand_put(ret, word, err);
    if (!missing)
        return expand_put(ret, value, err);
    if (*word)
        return err_set(err, ERR_INVALID, "%s: %s", name, word);
    return err_set(err, ERR_INVALID, "%s: must not be %s", name, value ? "empty" : "unset");
}

static int expand_apply_trim(const char *value, char op, const char *word, struct buf *ret,
                             struct err *err)
{
    bool greedy = *word == op;

    word += greedy;
    return op == '#' ? pattern_trim_prefix(word, value ? value : "", greedy, ret, err)
                     : pattern_trim_suffix(word, value ? value : "", greedy, ret, err);
}

/* Copies the text from `start` unchanged: EXPAND_SKIP_UNSET keeps variables without a value. */
static int expand_put_back(const char *start, const struct expand_lexer *lx, struct buf *ret,
                           struct err *err)
{
    return buf_append(ret, start, (size_t)(lx->s - start)) < 0 ? expand_too_long(err) : 0;
}

static int expand_read_replace(struct expand_lexer *lx, const char *start, const char *name,
                               struct buf *ret, struct err *err)
{
    _cleanup_free_ char *pattern = NULL, *with = NULL;
    const char *value = lx->x->get(lx->x->userdata, name);
    bool all = *lx->s == '/';
    int r;

    lx->s += all;
    r = expand_read_operand(lx, '/', true, true, &pattern, err);
    if (r < 0)
        return r;
    r = expand_read_operand(lx, '}', true, false, &with, err);
    if (r < 0)
        return r;
    if (!value && expand_has(lx, EXPAND_SKIP_UNSET))
        return expand_put_back(start, lx, ret, err);
    return pattern_replace(pattern, value ? value : "", with, all, ret, err);
}

/* Reads the operator and its operand after ${name. `start` is the dollar. */
static int expand_read_operator(struct expand_lexer *lx, const char *start, const char *name,
                                struct buf *ret, struct err *err)
{
    const char *value = lx->x->get(lx->x->userdata, name), *op = lx->s;
    bool colon = *op == ':', trims;
    _cleanup_free_ char *word = NULL;
    char c = op[colon];
    int r;

    if (c == '/' && !colon) {
        lx->s++;
        return expand_read_replace(lx, start, name, ret, err);
    }
    trims = c == '#' || c == '%';
    if (!c && !colon)
        return err_set(err, ERR_INVALID, "'}' is missing after '${'");
    if (!c || !strchr("-+?#%", c) || (trims && colon))
        return err_set(err, ERR_INVALID, "unsupported modifier (%.*s) in substitution",
                       (int)(colon + (c ? expand_char_len(op + colon) : 0)), op);
    lx->s += colon + 1;
    r = expand_read_operand(lx, '}', trims, trims, &word, err);
    if (r < 0)
        return r;
    if (!value && expand_has(lx, EXPAND_SKIP_UNSET))
        return expand_put_back(start, lx, ret, err);
    return trims ? expand_apply_trim(value, c, word, ret, err)
                 : expand_apply_default(name, value, c, colon, word, ret, err);
}

static int expand_read_braces(struct expand_lexer *lx, const char *start, struct buf *ret,
                              struct err *err)
{
    _cleanup_free_ char *name = NULL;
    const char *value;

    if (!*lx->s)
        return err_set(err, ERR_INVALID, "'}' is missing after '${'");
    if (strchr("{}:", *lx->s))
        return err_set(err, ERR_INVALID, "bad substitution: a name is missing after '${'");
    name = expand_read_name(lx);
    if (*lx->s != '}')
        return expand_read_operator(lx, start, name, ret, err);
    lx->s++;
    value = lx->x->get(lx->x->userdata, name);
    if (!value && expand_has(lx, EXPAND_SKIP_UNSET))
        return expand_put_back(start, lx, ret, err);
    return expand_put(ret, value ? value : "", err);
}

/* Reads the variable that begins with the dollar at lx->s. */
static int expand_read_dollar(struct expand_lexer *lx, struct buf *ret, struct err *err)
{
    _cleanup_free_ char *name = NULL;
    const char *start = lx->s++, *value;

    if (*lx->s == '{') {
        lx->s++;
        return expand_read_braces(lx, start, ret, err);
    }
    name = expand_read_name(lx);
    if (!*name)
        return expand_put(ret, "$", err);
    value = lx->x->get(lx->x->userdata, name);
    if (!value && expand_has(lx, EXPAND_SKIP_UNSET))
        return expand_put_back(start, lx, ret, err);
    return expand_put(ret, value ? value : "", err);
}

/* ---- the text ---- */

/* Blanks between << and the name of a heredoc do not end the word. */
static int expand_read_less(struct expand_lexer *lx, struct expand_result *ret, struct err *err)
{
    size_t n = 1;

    if (lx->s[1] == '<')
        n = 2 + strspn(lx->s + 2, "\t\r ");
    lx->s += n;
    return expand_add_raw(ret, lx->s - n, n, err);
}

static int expand_read_special(struct expand_lexer *lx, bool pattern, struct expand_result *ret,
                               struct err *err)
{
    _cleanup_buf_ struct buf piece = BUF_INIT(EXPAND_RESULT_MAX);
    char c = *lx->s;
    int r;

    if (c == '<')
        return expand_read_less(lx, ret, err);
    r = c == '$'    ? expand_read_dollar(lx, &piece, err)
        : c == '\'' ? expand_read_single(lx, pattern, &piece, err)
                    : expand_read_double(lx, pattern, &piece, err);
    if (r < 0)
        return r;
    return c == '$' ? expand_add(ret, buf_data(&piece), piece.len, err)
                    : expand_add_raw(ret, buf_data(&piece), piece.len, err);
}

/* Reads an ordinary character, or the escape character and the escaped one. */
static int expand_read_plain(struct expand_lexer *lx, struct expand_result *ret, struct err *err)
{
    size_t n = expand_char_len(lx->s);
    int r = 0;

    if (*lx->s != lx->x->escape) {
        lx->s += n;
        return expand_add(ret, lx->s - n, n, err);
    }
    if (lx->raw_escapes)
        r = expand_add_raw(ret, lx->s, 1, err);
    lx->s++;
    if (r < 0 || !*lx->s)
        return r;
    n = expand_char_len(lx->s);
    lx->s += n;
    return expand_add_raw(ret, lx->s - n, n, err);
}

static bool expand_is_special(const struct expand_lexer *lx)
{
    return *lx->s == '$' || *lx->s == '<' ||
           (!expand_has(lx, EXPAND_SKIP_QUOTES) && (*lx->s == '\'' || *lx->s == '"'));
}

/* Reads up to `stop`; 0: up to the end of the text. */
static int expand_read_until(struct expand_lexer *lx, char stop, bool raw_escapes, bool pattern,
                             struct expand_result *ret, struct err *err)
{
    bool outer = lx->raw_escapes;
    int r = 0;

    if (++lx->depth > EXPAND_DEPTH_MAX)
        return err_set(err, ERR_LIMIT,
                       "substitutions are nested too deeply (the limit is %d levels)",
                       EXPAND_DEPTH_MAX);
    lx->raw_escapes = raw_escapes;
    while (r >= 0 && *lx->s && *lx->s != stop)
        r = expand_is_special(lx) ? expand_read_special(lx, pattern, ret, err)
                                  : expand_read_plain(lx, ret, err);
    lx->raw_escapes = outer;
    lx->depth--;
    if (r < 0)
        return r;
    if (stop && !*lx->s)
        return err_set(err, ERR_INVALID, "'%c' is missing", stop);
    lx->s += stop != 0;
    expand_end_word(ret);
    return 0;
}

static int expand_run(const struct expand *x, const char *text, struct expand_result *ret,
                      struct err *err)
{
    struct expand_lexer lx = {.x = x, .s = text};
    struct err local = ERR_INIT; /* expand_read_operand() looks at the code */
    int r = expand_read_until(&lx, 0, x->flags & EXPAND_RAW_ESCAPES, false, ret, &local);

    return r < 0 ? err_move(err, &local) : 0;
}

int expand_word(const struct expand *x, const char *word, char **ret, struct err *err)
{
    _cleanup_(expand_result_done) struct expand_result res = RESULT_INIT;
    int r = expand_run(x, word, &res, err);

    if (r < 0)
        return r;
    *ret = buf_steal(&res.text);
    return 0;
}

int expand_words(const struct expand *x, const char *text, char ***ret, struct err *err)
{
    _cleanup_(expand_result_done) struct expand_result res = RESULT_INIT;
    int r = expand_run(x, text, &res, err);

    if (r < 0)
        return r;
    *ret = TAKE_PTR(res.words);
    return 0;
}

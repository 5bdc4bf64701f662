#include "image/dockerfile/heredoc.h"

#include <ctype.h>
#include <string.h>

#include "image/dockerfile/expand.h"
#include "image/dockerfile/word.h"
#include "lib/base/buf.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static const char *heredoc_no_variable(void *userdata, const char *name)
{
    (void)userdata;
    (void)name;
    return NULL;
}

static size_t heredoc_count_quotes(const char *s)
{
    size_t n = 0;

    for (; *s; s++)
        n += *s == '\'' || *s == '"';
    return n;
}

/* The only word of `text`, new; NULL: several words, no word, or an open quote. */
static char *heredoc_single_word(const char *text, unsigned flags, int *ret_r, struct err *err)
{
    struct expand x = {
        .escape = '\\', .flags = flags | EXPAND_SKIP_UNSET, .get = heredoc_no_variable};
    _cleanup_strv_ char **words = NULL;

    *ret_r = expand_words(&x, text, &words, err);
    return *ret_r >= 0 && strv_len(words) == 1 ? xstrdup(words[0]) : NULL;
}

/* [digits]<<[-]NAME. 1: the word is a mark, and *ret is filled. A quote in the name prevents the
 * expansion of variables in the content. */
static int heredoc_read_mark(const char *word, struct dockerfile_heredoc *ret, struct err *err)
{
    _cleanup_free_ char *name = NULL, *raw = NULL;
    bool chomp;
    int r;

    while (isdigit((unsigned char)*word))
        word++;
    if (strncmp(word, "<<", 2) != 0)
        return 0;
    word += 2;
    chomp = *word == '-';
    word += chomp;
    word += strspn(word, "\t\n\f\r ");
    if (!*word || strchr(word, '<'))
        return 0;
    name = heredoc_single_word(word, 0, &r, err);
    if (!name)
        return r;
    raw = heredoc_single_word(word, EXPAND_RAW_QUOTES, &r, err);
    if (!raw)
        return r;
    *ret = (struct dockerfile_heredoc){
        .chomp = chomp, .expand = heredoc_count_quotes(name) == heredoc_count_quotes(raw)};
    ret->name = TAKE_PTR(name);
    return 1;
}

bool heredoc_is_mark(const char *word, char **ret_name)
{
    struct dockerfile_heredoc h;

    if (heredoc_read_mark(word, &h, NULL) != 1)
        return false;
    if (ret_name)
        *ret_name = h.name;
    else
        free(h.name);
    return true;
}

/* Whether the next line ends the heredoc. */
static bool heredoc_ends(const struct dockerfile_heredoc *h, const char *s, size_t start,
                         size_t end)
{
    while (end > start && (s[end - 1] == '\n' || s[end - 1] == '\r'))
        end--;
    while (h->chomp && start < end && s[start] == '\t')
        start++;
    return end - start == strlen(h->name) && !memcmp(s + start, h->name, end - start);
}

static int heredoc_read_content(struct dockerfile_instruction *in, struct dockerfile_heredoc *h,
                                struct line_reader *r, size_t *ret_at, struct err *err)
{
    size_t start, end, from = r->pos;
    int rc;

    while ((rc = line_read_raw(r, &start, &end, ret_at, err)) > 0) {
        in->end = end;
        if (!heredoc_ends(h, r->text, start, end))
            continue;
        h->at = from;
        h->end = start;
        h->content = xstrndup(r->text + from, start - from);
        return strlen(h->content) == start - from
                   ? 0
                   : err_set(err, ERR_INVALID, "heredoc '%s' contains a NUL byte", h->name);
    }
    return rc < 0 ? rc : err_set(err, ERR_INVALID, "heredoc '%s' is not terminated", h->name);
}

static bool heredoc_may_have_some(const struct dockerfile_instruction *in)
{
    if (in->kind == DOCKERFILE_ONBUILD && in->trigger)
        in = in->trigger;
    return !in->json && (in->kind == DOCKERFILE_ADD || in->kind == DOCKERFILE_COPY ||
                         in->kind == DOCKERFILE_RUN);
}

/* The words of the whole line, as a shell splits them: a mark in quotes does not count. An open
 * quote hides all marks, as in BuildKit. */
static char **heredoc_line_words(const struct dockerfile_instruction *in)
{
    struct expand x = {.escape = '\\', .get = heredoc_no_variable};
    char **words = NULL;

    x.flags = EXPAND_RAW_QUOTES | EXPAND_RAW_ESCAPES | EXPAND_SKIP_UNSET;
    return expand_words(&x, in->line.text, &words, NULL) < 0 ? NULL : words;
}

int heredoc_read(struct dockerfile_instruction *in, struct line_reader *r, size_t *ret_at,
                 struct err *err)
{
    _cleanup_strv_ char **words = NULL;
    int rc = 0;

    if (!heredoc_may_have_some(in) || !strstr(in->line.text, "<<"))
        return 0;
    words = heredoc_line_words(in);
    *ret_at = in->at;
    for (size_t i = 0; words && words[i]; i++) {
        struct dockerfile_heredoc h;

        rc = heredoc_read_mark(words[i], &h, err);
        if (rc == 0)
            continue;
        if (rc < 0)
            return rc;
        in->heredocs = xreallocarray(in->heredocs, in->n_heredocs + 1, sizeof(*in->heredocs));
        in->heredocs[in->n_heredocs++] = h;
        rc = heredoc_read_content(in, &in->heredocs[in->n_heredocs - 1], r, ret_at, err);
        if (rc < 0)
            return rc;
    }
    return 0;
}

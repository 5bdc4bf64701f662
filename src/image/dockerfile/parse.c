/*
 * The table at the top names the form of each instruction's arguments; the functions below read the
 * forms. check.c checks the words.
 */
#include "image/dockerfile/parse.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "image/dockerfile/check.h"
#include "image/dockerfile/json-list.h"
#include "image/dockerfile/word.h"
#include "lib/base/buf.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

struct parse_state {
    struct dockerfile_instruction *in;
    char escape;
    size_t start, end; /* the arguments after the flags, in the joined line */
    size_t at;         /* position of an error, in the source */
};

typedef int (*form_fn)(struct parse_state *p, struct err *err);

static int dockerfile_parse_form_words(struct parse_state *p, struct err *err);
static int dockerfile_parse_form_quoted(struct parse_state *p, struct err *err);
static int dockerfile_parse_form_pairs(struct parse_state *p, struct err *err);
static int dockerfile_parse_form_string(struct parse_state *p, struct err *err);
static int dockerfile_parse_form_command(struct parse_state *p, struct err *err);
static int dockerfile_parse_form_paths(struct parse_state *p, struct err *err);
static int dockerfile_parse_form_health(struct parse_state *p, struct err *err);
static int dockerfile_parse_form_trigger(struct parse_state *p, struct err *err);

/* clang-format off */
static const struct {
    const char *name;
    form_fn form;
} kinds[] = {
    [DOCKERFILE_ADD]         = {"ADD", dockerfile_parse_form_paths},
    [DOCKERFILE_ARG]         = {"ARG", dockerfile_parse_form_quoted},
    [DOCKERFILE_CMD]         = {"CMD", dockerfile_parse_form_command},
    [DOCKERFILE_COPY]        = {"COPY", dockerfile_parse_form_paths},
    [DOCKERFILE_ENTRYPOINT]  = {"ENTRYPOINT", dockerfile_parse_form_command},
    [DOCKERFILE_ENV]         = {"ENV", dockerfile_parse_form_pairs},
    [DOCKERFILE_EXPOSE]      = {"EXPOSE", dockerfile_parse_form_words},
    [DOCKERFILE_FROM]        = {"FROM", dockerfile_parse_form_words},
    [DOCKERFILE_HEALTHCHECK] = {"HEALTHCHECK", dockerfile_parse_form_health},
    [DOCKERFILE_LABEL]       = {"LABEL", dockerfile_parse_form_pairs},
    [DOCKERFILE_MAINTAINER]  = {"MAINTAINER", dockerfile_parse_form_string},
    [DOCKERFILE_ONBUILD]     = {"ONBUILD", dockerfile_parse_form_trigger},
    [DOCKERFILE_RUN]         = {"RUN", dockerfile_parse_form_command},
    [DOCKERFILE_SHELL]       = {"SHELL", dockerfile_parse_form_command},
    [DOCKERFILE_STOPSIGNAL]  = {"STOPSIGNAL", dockerfile_parse_form_string},
    [DOCKERFILE_USER]        = {"USER", dockerfile_parse_form_string},
    [DOCKERFILE_VOLUME]      = {"VOLUME", dockerfile_parse_form_paths},
    [DOCKERFILE_WORKDIR]     = {"WORKDIR", dockerfile_parse_form_string},
};
/* clang-format on */

const char *dockerfile_kind_name(enum dockerfile_kind kind)
{
    return kinds[kind].name;
}

void instruction_done(struct dockerfile_instruction *in)
{
    for (size_t i = 0; i < in->n_flags; i++) {
        free(in->flags[i].name);
        free(in->flags[i].value);
    }
    for (size_t i = 0; i < in->n_words; i++)
        free(in->words[i].text);
    for (size_t i = 0; i < in->n_heredocs; i++) {
        free(in->heredocs[i].name);
        free(in->heredocs[i].content);
    }
    for (size_t i = 0; i < in->n_mounts; i++)
        mount_done(&in->mounts[i]);
    if (in->trigger)
        instruction_done(in->trigger);
    free(in->trigger);
    free(in->flags);
    free(in->words);
    free(in->heredocs);
    free(in->mounts);
    line_done(&in->line);
    *in = (struct dockerfile_instruction){0};
}

/* ---- words ---- */

static void dockerfile_parse_add_word(struct parse_state *p, char *owned, size_t start, size_t end)
{
    struct dockerfile_instruction *in = p->in;

    if (!(in->n_words & (in->n_words - 1)))
        in->words = xreallocarray(in->words, in->n_words ? in->n_words * 2 : 1, sizeof(*in->words));
    in->words[in->n_words++] = (struct dockerfile_word){
        owned, line_source(&in->line, start),
        end > start ? line_source(&in->line, end - 1) + 1 : line_source(&in->line, start)};
}

static void dockerfile_parse_add_span(struct parse_state *p, size_t start, size_t end)
{
    dockerfile_parse_add_word(p, xstrndup(p->in->line.text + start, end - start), start, end);
}

static int dockerfile_parse_form_words(struct parse_state *p, struct err *err)
{
    size_t n;
    struct word_span *v = word_split(p->in->line.text, p->start, p->end, &n);

    (void)err;
    for (size_t i = 0; i < n; i++)
        dockerfile_parse_add_span(p, v[i].start, v[i].end);
    free(v);
    return 0;
}

static int dockerfile_parse_form_quoted(struct parse_state *p, struct err *err)
{
    size_t n;
    struct word_span *v = word_split_quoted(p->in->line.text, p->start, p->end, p->escape, &n);

    (void)err;
    for (size_t i = 0; i < n; i++)
        dockerfile_parse_add_span(p, v[i].start, v[i].end);
    free(v);
    return 0;
}

static int dockerfile_parse_form_string(struct parse_state *p, struct err *err)
{
    (void)err;
    if (p->start < p->end)
        dockerfile_parse_add_span(p, p->start, p->end);
    return 0;
}

/* ---- ENV and LABEL ---- */

/* NAME VALUE: the value is the whole rest of the line. */
static int dockerfile_parse_old_pair(struct parse_state *p, struct err *err)
{
    const char *s = p->in->line.text;
    size_t i = p->start;

    while (i < p->end && !word_blank(s[i]))
        i++;
    if (i == p->end) {
        p->at = line_source(&p->in->line, p->start);
        err_set(err, ERR_INVALID, "%s '%.*s' has no value", kinds[p->in->kind].name,
                (int)MIN(p->end - p->start, 64), s + p->start);
        return err_hint(err, "Write %s NAME=VALUE.", kinds[p->in->kind].name);
    }
    dockerfile_parse_add_span(p, p->start, i);
    while (i < p->end && word_blank(s[i]))
        i++;
    dockerfile_parse_add_span(p, i, p->end);
    p->in->legacy = true;
    return 0;
}

static int dockerfile_parse_new_pair(struct parse_state *p, const struct word_span *w,
                                     struct err *err)
{
    const char *s = p->in->line.text, *equals = memchr(s + w->start, '=', w->end - w->start);
    size_t at;

    if (!equals) {
        p->at = line_source(&p->in->line, w->start);
        err_set(err, ERR_INVALID, "'%.*s' has no '='", (int)MIN(w->end - w->start, 64),
                s + w->start);
        return err_hint(err, "Write each %s entry as NAME=VALUE. A value with blanks needs quotes.",
                        kinds[p->in->kind].name);
    }
    at = (size_t)(equals - s);
    dockerfile_parse_add_span(p, w->start, at);
    dockerfile_parse_add_span(p, at + 1, w->end);
    return 0;
}

static int dockerfile_parse_form_pairs(struct parse_state *p, struct err *err)
{
    const char *s = p->in->line.text;
    size_t n;
    _cleanup_free_ struct word_span *v = word_split_quoted(s, p->start, p->end, p->escape, &n);

    if (n && !memchr(s + v[0].start, '=', v[0].end - v[0].start))
        return dockerfile_parse_old_pair(p, err);
    for (size_t i = 0; i < n; i++) {
        int r = dockerfile_parse_new_pair(p, &v[i], err);

        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- exec and shell forms ---- */

/* 1: it is the exec form. */
static int dockerfile_parse_try_json(struct parse_state *p, struct err *err)
{
    struct json_list_item *items;
    size_t n;
    enum json_list_result found = json_list_parse(p->in->line.text, p->start, p->end, &items, &n);

    if (found == JSON_LIST_NO)
        return 0;
    if (found == JSON_LIST_MIXED) {
        p->at = line_source(&p->in->line, items[n - 1].start);
        json_list_free(items, n);
        return err_set(err, ERR_INVALID, "an array can contain only strings here");
    }
    for (size_t i = 0; i < n; i++) {
        dockerfile_parse_add_word(p, items[i].text, items[i].start, items[i].end);
        items[i].text = NULL;
    }
    json_list_free(items, n);
    p->in->json = true;
    return 1;
}

static int dockerfile_parse_form_command(struct parse_state *p, struct err *err)
{
    int r = dockerfile_parse_try_json(p, err);

    return r ? MIN(r, 0) : dockerfile_parse_form_string(p, err);
}

static int dockerfile_parse_form_paths(struct parse_state *p, struct err *err)
{
    int r = dockerfile_parse_try_json(p, err);

    return r ? MIN(r, 0) : dockerfile_parse_form_words(p, err);
}

static int dockerfile_parse_form_health(struct parse_state *p, struct err *err)
{
    const char *s = p->in->line.text;
    size_t i = p->start;

    while (i < p->end && !word_space(s + i, p->end - i))
        i++;
    if (i == p->start)
        return 0;
    dockerfile_parse_add_span(p, p->start, i);
    p->start = i;
    word_trim(s, &p->start, &p->end);
    return dockerfile_parse_form_command(p, err);
}

/* ---- ONBUILD ---- */

static int dockerfile_parse_form_trigger(struct parse_state *p, struct err *err)
{
    struct dockerfile_instruction *t;

    if (p->start == p->end)
        return 0;
    t = p->in->trigger = xnew0(struct dockerfile_instruction);
    line_tail(&p->in->line, p->start, &t->line);
    t->at = t->line.at;
    t->end = p->in->end;
    t->lead = t->at;
    return parse_instruction(t, p->escape, &p->at, err);
}

/* ---- flags ---- */

static void dockerfile_parse_add_flag(struct parse_state *p, const struct buf *word, size_t start,
                                      size_t end)
{
    struct dockerfile_instruction *in = p->in;
    const char *text = buf_data(word), *equals = strchr(text, '=');

    if (!(in->n_flags & (in->n_flags - 1)))
        in->flags = xreallocarray(in->flags, in->n_flags ? in->n_flags * 2 : 1, sizeof(*in->flags));
    in->flags[in->n_flags++] = (struct dockerfile_flag){
        .name = equals ? xstrndup(text + 2, (size_t)(equals - text) - 2) : xstrdup(text + 2),
        .value = equals ? xstrdup(equals + 1) : NULL,
        .at = line_source(&in->line, start),
        .end = line_source(&in->line, end - 1) + 1,
    };
}

/* Reads a word that begins with "--", without its quotes. Returns the offset after it. */
static size_t dockerfile_parse_read_flag(const struct parse_state *p, size_t i, struct buf *word)
{
    const char *s = p->in->line.text;
    char quote = 0;

    for (; i < p->end && (quote || !word_space(s + i, p->end - i)); i++) {
        if (quote ? s[i] == quote : s[i] == '\'' || s[i] == '"') {
            quote = quote ? 0 : s[i];
            continue;
        }
        if (s[i] == p->escape && ++i == p->end)
            break;
        (void)!buf_append_c(word, s[i]); /* no longer than the line */
    }
    return i;
}

/* Flags come between the name and the arguments; "--" alone ends them. */
static void dockerfile_parse_read_flags(struct parse_state *p)
{
    const char *s = p->in->line.text;
    _cleanup_buf_ struct buf word = BUF_INIT(p->in->line.len + 1);

    for (;;) {
        size_t start, end = p->end;

        word_trim(s, &p->start, &end);
        start = p->start;
        if (p->end - start < 2 || s[start] != '-' || s[start + 1] != '-')
            break;
        buf_clear(&word);
        p->start = dockerfile_parse_read_flag(p, start, &word);
        if (STREQ(buf_data(&word), "--"))
            break;
        dockerfile_parse_add_flag(p, &word, start, p->start);
    }
    word_trim(s, &p->start, &p->end);
}

/* ---- the instruction ---- */

static int dockerfile_parse_unknown(const char *word, size_t len, struct err *err)
{
    const char *names[ARRAY_SIZE(kinds)], *near;
    _cleanup_free_ char *upper = xstrndup(word, MIN(len, 64));

    for (char *c = upper; *c; c++)
        *c = (char)toupper((unsigned char)*c);
    for (size_t i = 0; i < ARRAY_SIZE(kinds); i++)
        names[i] = kinds[i].name;
    err_set(err, ERR_INVALID, "unknown instruction '%.*s'", (int)MIN(len, 64), word);
    near = strv_nearest(upper, names, ARRAY_SIZE(names));
    return near ? err_hint(err, "Did you mean %s?", near) : -ERR_INVALID;
}

static int dockerfile_parse_find_kind(struct parse_state *p, struct err *err)
{
    const char *s = p->in->line.text;
    size_t start = p->start, i;

    while (p->start < p->end && !word_blank(s[p->start]))
        p->start++;
    for (i = 0; i < ARRAY_SIZE(kinds); i++)
        if (strlen(kinds[i].name) == p->start - start &&
            !strncasecmp(kinds[i].name, s + start, p->start - start))
            break;
    if (i == ARRAY_SIZE(kinds)) {
        p->at = line_source(&p->in->line, start);
        return dockerfile_parse_unknown(s + start, p->start - start, err);
    }
    p->in->kind = (enum dockerfile_kind)i;
    return 0;
}

int parse_instruction(struct dockerfile_instruction *in, char escape, size_t *ret_at,
                      struct err *err)
{
    struct parse_state p = {.in = in, .escape = escape, .end = in->line.len, .at = in->line.at};
    int r;

    if (memchr(in->line.text, 0, in->line.len)) {
        *ret_at = in->line.at;
        return err_set(err, ERR_INVALID, "this line contains a NUL byte");
    }
    word_trim(in->line.text, &p.start, &p.end);
    r = dockerfile_parse_find_kind(&p, err);
    if (r < 0) {
        *ret_at = p.at;
        return r;
    }
    dockerfile_parse_read_flags(&p);
    r = kinds[in->kind].form(&p, err);
    if (r < 0) {
        *ret_at = p.at;
        return r;
    }
    return check_instruction(in, ret_at, err);
}

/*
 * Parses the text to the tree: lines, instructions, heredocs, stages.
 */
#include "image/dockerfile/dockerfile.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#include "image/dockerfile/heredoc.h"
#include "image/dockerfile/parse.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

void dockerfile_free(struct dockerfile *df)
{
    if (!df)
        return;
    for (size_t i = 0; i < df->n_instructions; i++)
        instruction_done(&df->instructions[i]);
    for (size_t i = 0; i < df->n_stages; i++)
        free(df->stages[i].name);
    free(df->instructions);
    free(df->stages);
    free(df->lines);
    free(df->syntax);
    free(df->check);
    free(df->text);
    free(df);
}

/* ---- positions ---- */

static void dockerfile_find_lines(struct dockerfile *df)
{
    size_t n = 1;

    for (const char *p = df->text; (p = memchr(p, '\n', df->len - (size_t)(p - df->text))); p++)
        n++;
    df->lines = xreallocarray(NULL, n, sizeof(*df->lines));
    df->lines[df->n_lines++] = 0;
    for (const char *p = df->text; (p = memchr(p, '\n', df->len - (size_t)(p - df->text))); p++)
        df->lines[df->n_lines++] = (size_t)(p - df->text) + 1;
}

struct dockerfile_pos dockerfile_pos(const struct dockerfile *df, size_t at)
{
    size_t lo = 0, hi = df->n_lines;

    while (hi - lo > 1) {
        size_t mid = (lo + hi) / 2;

        if (df->lines[mid] <= at)
            lo = mid;
        else
            hi = mid;
    }
    return (struct dockerfile_pos){(unsigned)lo + 1, (unsigned)(at - df->lines[lo]) + 1};
}

/* ---- looking things up ---- */

const char *dockerfile_flag(const struct dockerfile_instruction *in, const char *name)
{
    for (size_t i = in->n_flags; i-- > 0;)
        if (STREQ(in->flags[i].name, name))
            return in->flags[i].value ? in->flags[i].value : "";
    return NULL;
}

long dockerfile_find_stage(const struct dockerfile *df, const char *name, size_t before)
{
    uint32_t index;

    if (parse_u32(name, 0, DOCKERFILE_STAGES_MAX, &index, NULL) >= 0)
        return index < before ? (long)index : -1;
    for (size_t i = before; i-- > 0;)
        if (df->stages[i].name && !strcasecmp(df->stages[i].name, name))
            return (long)i;
    return -1;
}

/* ---- the tree ---- */

static char *dockerfile_lower(const char *s)
{
    char *copy = xstrdup(s);

    for (char *c = copy; *c; c++)
        *c = (char)tolower((unsigned char)*c);
    return copy;
}

/* Each FROM begins a stage; the first one ends the global ARGs. */
static int dockerfile_add_stage(struct dockerfile *df, size_t i, struct err *err)
{
    const struct dockerfile_instruction *from = &df->instructions[i];

    if (df->n_stages == DOCKERFILE_STAGES_MAX)
        return err_set(err, ERR_LIMIT, "too many stages (the limit is %d)", DOCKERFILE_STAGES_MAX);
    if (!(df->n_stages & (df->n_stages - 1)))
        df->stages =
            xreallocarray(df->stages, df->n_stages ? df->n_stages * 2 : 1, sizeof(*df->stages));
    df->stages[df->n_stages++] = (struct dockerfile_stage){
        .name = from->n_words == 3 ? dockerfile_lower(from->words[2].text) : NULL, .first = i + 1};
    return 0;
}

static int dockerfile_place_instruction(struct dockerfile *df, size_t i, struct err *err)
{
    enum dockerfile_kind kind = df->instructions[i].kind;

    if (kind == DOCKERFILE_FROM)
        return dockerfile_add_stage(df, i, err);
    if (df->n_stages)
        return 0;
    if (kind == DOCKERFILE_ARG) {
        df->n_globals++;
        return 0;
    }
    err_set(err, ERR_INVALID, "%s before the first FROM", dockerfile_kind_name(kind));
    return err_hint(err, "Move it behind FROM. Only ARG can come before FROM.");
}

static struct dockerfile_instruction *dockerfile_new_instruction(struct dockerfile *df,
                                                                 struct dockerfile_line *line)
{
    struct dockerfile_instruction *in;
    size_t n = df->n_instructions;

    if (!(n & (n - 1)))
        df->instructions =
            xreallocarray(df->instructions, n ? n * 2 : 1, sizeof(*df->instructions));
    in = &df->instructions[df->n_instructions++];
    *in = (struct dockerfile_instruction){
        .at = line->at, .end = line->end, .lead = line->lead, .line = *line};
    return in;
}

static int dockerfile_read_instruction(struct dockerfile *df, struct line_reader *r, size_t *ret_at,
                                       struct err *err)
{
    struct dockerfile_instruction *in;
    struct dockerfile_line line;
    int rc = line_read(r, &line, ret_at, err);

    if (rc <= 0)
        return rc;
    *ret_at = line.at;
    if (df->n_instructions == DOCKERFILE_INSTRUCTIONS_MAX) {
        line_done(&line);
        return err_set(err, ERR_LIMIT, "too many instructions (the limit is %d)",
                       DOCKERFILE_INSTRUCTIONS_MAX);
    }
    in = dockerfile_new_instruction(df, &line);
    rc = parse_instruction(in, r->escape, ret_at, err);
    if (rc < 0)
        return rc;
    rc = heredoc_read(in, r, ret_at, err);
    if (rc < 0)
        return rc;
    *ret_at = in->at;
    rc = dockerfile_place_instruction(df, df->n_instructions - 1, err);
    return rc < 0 ? rc : 1;
}

/* Sets the pointers of stages, after the array of instructions has its final place. */
static void dockerfile_link_stages(struct dockerfile *df)
{
    for (size_t i = 0; i < df->n_stages; i++) {
        df->stages[i].from = &df->instructions[df->stages[i].first - 1];
        df->stages[i].last =
            i + 1 < df->n_stages ? df->stages[i + 1].first - 1 : df->n_instructions;
    }
}

static int dockerfile_read_all(struct dockerfile *df, size_t *ret_at, struct err *err)
{
    struct line_reader r;
    int rc;

    line_reader_init(&r, df->text, df->len);
    do
        rc = dockerfile_read_instruction(df, &r, ret_at, err);
    while (rc > 0);
    df->escape = r.escape;
    df->syntax = TAKE_PTR(r.syntax);
    df->check = TAKE_PTR(r.check);
    line_reader_done(&r);
    if (rc < 0)
        return rc;
    dockerfile_link_stages(df);
    *ret_at = df->len;
    if (!df->n_instructions)
        return err_set(err, ERR_INVALID, "the Dockerfile has no instructions");
    return df->n_stages ? 0 : err_set(err, ERR_INVALID, "the Dockerfile has no FROM");
}

int dockerfile_parse(const char *text, size_t len, struct dockerfile **ret, size_t *ret_at,
                     struct err *err)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df = xnew0(struct dockerfile);
    struct dockerfile_pos pos;
    size_t at = 0;
    int r;

    if (len > DOCKERFILE_SIZE_MAX)
        return err_set(err, ERR_LIMIT, "the Dockerfile has %zu bytes (the limit is %d)", len,
                       DOCKERFILE_SIZE_MAX);
    df->text = xmalloc(len + 1);
    memcpy(df->text, text, len);
    df->text[len] = 0;
    df->len = len;
    dockerfile_find_lines(df);
    r = dockerfile_read_all(df, &at, err);
    if (r < 0) {
        if (ret_at)
            *ret_at = at;
        pos = dockerfile_pos(df, at);
        return err_wrap(err, "line %u, column %u", pos.line, pos.column);
    }
    *ret = TAKE_PTR(df);
    return 0;
}

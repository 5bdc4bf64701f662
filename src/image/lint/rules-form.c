/*
 * The form of the file: the order of instructions, deprecated forms, and the user at the end.
 */
#include <string.h>

#include "image/lint/rules.h"
#include "image/lint/tool.h"
#include "lib/base/buf.h"
#include "lib/base/xalloc.h"

/* ---- COPY and ADD ---- */

static void rules_form_check_urls(const struct lint_walk *w)
{
    if (w->in->kind != DOCKERFILE_ADD || dockerfile_flag(w->in, "checksum"))
        return;
    for (size_t i = 0; i + 1 < w->in->n_words; i++) {
        const struct dockerfile_word *word = &w->in->words[i];
        size_t n = strlen(word->text);
        bool url = !strncmp(word->text, "http://", 7) || !strncmp(word->text, "https://", 8);

        if (url && !(n > 4 && STREQ(word->text + n - 4, ".git")))
            lint_set_fix(
                lint_find(w, RULE_ADD_URL, word->at, word->end,
                          "ADD downloads a URL without a checksum: the server decides what is "
                          "in the image"),
                "Add --checksum=sha256:… to the ADD.");
    }
}

/* The word that copies the whole build context, or NULL. */
static const struct dockerfile_word *
rules_form_whole_context(const struct dockerfile_instruction *in)
{
    if ((in->kind != DOCKERFILE_COPY && in->kind != DOCKERFILE_ADD) || dockerfile_flag(in, "from"))
        return NULL;
    for (size_t i = 0; i + 1 < in->n_words; i++)
        if (STREQ(in->words[i].text, ".") || STREQ(in->words[i].text, "./") ||
            STREQ(in->words[i].text, "/"))
            return &in->words[i];
    return NULL;
}

static bool rules_form_installs_something(const struct dockerfile_instruction *in,
                                          const char **ret_tool)
{
    struct shell_script s;
    bool found = false;

    if (in->kind != DOCKERFILE_RUN)
        return false;
    shell_read(in, &s);
    for (size_t i = 0; i < s.n && !found; i++) {
        const struct lint_tool *t = tool_of(&s.commands[i], &found);

        found = t && found;
        if (found)
            *ret_tool = t->name;
    }
    shell_script_done(&s);
    return found;
}

static void rules_form_check_order(const struct lint_walk *w)
{
    const struct dockerfile_word *all = rules_form_whole_context(w->in);
    const struct dockerfile_stage *st = &w->df->stages[w->stage];
    const char *tool = "";

    for (size_t i = st->first; all && i < st->last; i++) {
        const struct dockerfile_instruction *in = &w->df->instructions[i];

        if (in < w->in && rules_form_whole_context(in))
            return; /* the first one is reported */
        if (in <= w->in || !rules_form_installs_something(in, &tool))
            continue;
        lint_set_fix(lint_find(w, RULE_COPY_BEFORE_INSTALL, all->at, all->end,
                               "a change of any file makes %s in line %u install everything again",
                               tool, dockerfile_pos(w->df, in->at).line),
                     "Copy the list of packages first, install the packages, then copy the rest.");
        return;
    }
}

static void rules_form_check_ignore_file(const struct lint_walk *w)
{
    const struct dockerfile_word *all = rules_form_whole_context(w->in);

    if (all && !w->context->has_ignore_file)
        lint_set_fix(
            lint_find(w, RULE_NO_DOCKERIGNORE, all->at, all->end,
                      "the whole folder is copied, with .git, and there is no .dockerignore"),
            "List files that do not belong in the image in .dockerignore.");
}

/* ---- old forms ---- */

/* The value in double quotes, with escapes; new. */
static char *rules_form_quoted(const char *value, char escape)
{
    struct buf b = BUF_INIT(strlen(value) * 2 + 3); /* large enough: no call below can fail */

    (void)!buf_append_c(&b, '"');
    for (; *value; value++) {
        if (*value == '"' || *value == escape)
            (void)!buf_append_c(&b, escape);
        (void)!buf_append_c(&b, *value);
    }
    (void)!buf_append_c(&b, '"');
    return buf_steal(&b);
}

static void rules_form_check_maintainer(const struct lint_walk *w)
{
    const struct dockerfile_word *word = &w->in->words[0];
    _cleanup_free_ char *value = NULL;
    struct lint_finding *f;

    if (w->in->kind != DOCKERFILE_MAINTAINER)
        return;
    value = rules_form_quoted(word->text, w->df->escape);
    f = lint_find(w, RULE_DEPRECATED_MAINTAINER, w->in->at, word->end, "MAINTAINER is deprecated");
    lint_set_fix(f, "Write LABEL org.opencontainers.image.authors=%s.", value);
    lint_set_edit(f, w->in->at, word->end,
                  xasprintf("LABEL org.opencontainers.image.authors=%s", value));
}

/* No edit for a value with quotes or escapes: it has another meaning in the new form. */
static void rules_form_check_pair(const struct lint_walk *w)
{
    const struct dockerfile_word *key = &w->in->words[0], *value = &w->in->words[1];
    const char *kind = dockerfile_kind_name(w->in->kind);
    struct lint_finding *f;

    if (!w->in->legacy)
        return;
    f = lint_find(w, RULE_DEPRECATED_KEY_VALUE, key->at, value->end,
                  "'%s NAME VALUE' is deprecated: the whole rest of the line is the value", kind);
    lint_set_fix(f, "Write %s %s=\"…\".", kind, key->text);
    if (!strpbrk(value->text, "\"'\\`") &&
        dockerfile_pos(w->df, key->at).line == dockerfile_pos(w->df, value->end).line)
        lint_set_edit(f, key->at, value->end, xasprintf("%s=\"%s\"", key->text, value->text));
}

static void rules_form_check_gap(const struct lint_walk *w)
{
    size_t at = w->in->line.gap_at;
    struct dockerfile_pos pos;
    struct lint_finding *f;

    if (!w->in->line.gap)
        return;
    pos = dockerfile_pos(w->df, at);
    f = lint_find(w, RULE_EMPTY_CONTINUATION, at, at,
                  "empty line inside an instruction (a future BuildKit will reject it)");
    lint_set_fix(f, "Remove the line.");
    if (pos.line < w->df->n_lines)
        lint_set_edit(f, at, w->df->lines[pos.line], xstrdup(""));
}

void rules_form(const struct lint_walk *w)
{
    rules_form_check_urls(w);
    rules_form_check_order(w);
    rules_form_check_ignore_file(w);
    rules_form_check_maintainer(w);
    if (w->in->kind == DOCKERFILE_ENV || w->in->kind == DOCKERFILE_LABEL)
        rules_form_check_pair(w);
    rules_form_check_gap(w);
}

/* ---- the end ---- */

void rules_end(const struct lint_walk *w)
{
    const char *user = w->at->user;
    size_t n = user ? strcspn(user, ":") : 0;

    if (n && !(n == 4 && !strncmp(user, "root", 4)) && !(n == 1 && *user == '0'))
        return;
    lint_set_fix(
        lint_find(w, RULE_ROOT_USER, w->in->at, w->in->words[0].end, "%s",
                  n ? "the image runs as root"
                    : "no USER is set: the image runs as root, unless its base image sets a user"),
        "Set USER to a non-root user at the end.");
}

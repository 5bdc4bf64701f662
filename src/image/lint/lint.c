/*
 * Walks through the file and calls the rules. Also the parts that all rules share: the table of
 * rules, findings, ignore comments and edits.
 */
#include "image/lint/lint.h"

#include <stdarg.h>
#include <string.h>

#include "image/lint/rules.h"
#include "lib/base/buf.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

/* clang-format off */
const struct lint_rule lint_rules[] = {
    [RULE_SYNTAX] = {"syntax", LINT_ERROR, "the file is not a valid Dockerfile"},
    [RULE_CACHE_DEFEATED] = {"cache-defeated", LINT_ERROR, "a RUN mounts a cache and switches it off or empties it"},
    [RULE_CACHE_DOCKER_CLEAN] = {"cache-docker-clean", LINT_WARNING, "Debian's docker-clean hook empties a cache mount"},
    [RULE_CACHE_OWNER] = {"cache-owner", LINT_WARNING, "the user of the RUN does not own the cache mount"},
    [RULE_CACHE_UNUSED] = {"cache-unused", LINT_WARNING, "the tool does not use the folder of the cache mount"},
    [RULE_NO_CACHE] = {"no-cache", LINT_WARNING, "packages are installed without a cache mount"},
    [RULE_UNPINNED_BASE] = {"unpinned-base", LINT_WARNING, "the base image has no version"},
    [RULE_UNPINNED_PIP] = {"unpinned-pip", LINT_WARNING, "a Python package has no version"},
    [RULE_UNPINNED_NPM] = {"unpinned-npm", LINT_WARNING, "an npm package has no version"},
    [RULE_UNPINNED_APT] = {"unpinned-apt", LINT_INFO, "a Debian package has no version"},
    [RULE_SECRET_VARIABLE] = {"secret-variable", LINT_ERROR, "ENV or ARG contains a secret"},
    [RULE_SECRET_FILE] = {"secret-file", LINT_ERROR, "COPY or ADD copies a secret"},
    [RULE_PIPE_TO_SHELL] = {"pipe-to-shell", LINT_WARNING, "a download is piped into a shell"},
    [RULE_ADD_URL] = {"add-url", LINT_WARNING, "ADD downloads a URL without a checksum"},
    [RULE_ROOT_USER] = {"root-user", LINT_WARNING, "the image runs as root"},
    [RULE_COPY_BEFORE_INSTALL] = {"copy-before-install", LINT_WARNING, "everything is copied before packages are installed"},
    [RULE_NO_PIPEFAIL] = {"no-pipefail", LINT_WARNING, "a failure in a pipe is ignored"},
    [RULE_NO_DOCKERIGNORE] = {"no-dockerignore", LINT_WARNING, "the whole folder is copied without a .dockerignore"},
    [RULE_DEPRECATED_MAINTAINER] = {"deprecated-maintainer", LINT_WARNING, "MAINTAINER is deprecated"},
    [RULE_DEPRECATED_KEY_VALUE] = {"deprecated-key-value", LINT_WARNING, "ENV NAME VALUE is deprecated"},
    [RULE_EMPTY_CONTINUATION] = {"empty-continuation", LINT_WARNING, "there is an empty line inside an instruction"},
};
/* clang-format on */

const size_t lint_n_rules = ARRAY_SIZE(lint_rules);

enum { FINDINGS_MAX = 10000 };

const char *lint_severity_name(enum lint_severity s)
{
    static const char *const names[] = {"info", "warning", "error"};

    return names[s];
}

static void lint_finding_done(struct lint_finding *f)
{
    if (f->edit)
        free(f->edit->text);
    free(f->edit);
    free(f->message);
    free(f->fix);
}

void lint_report_done(struct lint_report *r)
{
    for (size_t i = 0; i < r->n; i++)
        lint_finding_done(&r->findings[i]);
    free(r->findings);
    *r = (struct lint_report){0};
}

int lint_worst(const struct lint_report *r)
{
    int worst = -1;

    for (size_t i = 0; i < r->n; i++)
        worst = MAX(worst, (int)r->findings[i].rule->severity);
    return worst;
}

/* ---- findings ---- */

static struct lint_finding *lint_add(struct lint_report *out, enum lint_rule_id rule, size_t at,
                                     size_t end, char *owned)
{
    struct lint_finding *f;

    if (out->n == FINDINGS_MAX) /* replaces the last one */
        lint_finding_done(&out->findings[--out->n]);
    if (!(out->n & (out->n - 1)))
        out->findings =
            xreallocarray(out->findings, out->n ? out->n * 2 : 1, sizeof(*out->findings));
    f = &out->findings[out->n++];
    *f = (struct lint_finding){.rule = &lint_rules[rule], .at = at, .end = end, .message = owned};
    return f;
}

struct lint_finding *lint_find(const struct lint_walk *w, enum lint_rule_id rule, size_t at,
                               size_t end, const char *fmt, ...)
{
    va_list ap;
    char *text;

    va_start(ap, fmt);
    text = xvasprintf(fmt, ap);
    va_end(ap);
    return lint_add(w->out, rule, at, end, text);
}

void lint_set_fix(struct lint_finding *f, const char *fmt, ...)
{
    va_list ap;

    va_start(ap, fmt);
    f->fix = xvasprintf(fmt, ap);
    va_end(ap);
}

void lint_set_edit(struct lint_finding *f, size_t at, size_t end, char *text)
{
    f->edit = xnew0(struct lint_edit);
    *f->edit = (struct lint_edit){at, end, text};
}

/* ---- ignores ---- */

/* Whether a comment in [at, end) has `what` ("ripcord: ignore=") with this rule in its list. */
static bool lint_comment_has(const char *text, size_t at, size_t end, const char *what,
                             const char *id)
{
    _cleanup_free_ char *part = xstrndup(text + at, end - at);
    size_t n = strlen(id);

    for (char *p = part; (p = strstr(p, what)); p++) {
        char *line = p;

        while (line > part && line[-1] != '\n')
            line--;
        line += strspn(line, " \t");
        if (*line != '#' || strspn(line + 1, " \t") != (size_t)(p - line) - 1)
            continue;
        for (const char *q = p + strlen(what); *q && *q != '\n' && *q != ' ';) {
            size_t len = strcspn(q, ", \t\r\n");

            if (len == n && !strncmp(q, id, n))
                return true;
            q += len + (q[len] == ',');
            if (q[-1] != ',')
                break;
        }
    }
    return false;
}

static bool lint_is_ignored(const struct dockerfile *df, const struct lint_finding *f)
{
    for (size_t i = 0; i < df->n_instructions; i++) {
        const struct dockerfile_instruction *in = &df->instructions[i];

        if (f->at >= in->lead && f->at < MAX(in->end, in->at + 1))
            return lint_comment_has(df->text, in->lead, in->end, "ripcord: ignore=", f->rule->id);
    }
    return false;
}

static void lint_drop_ignored(const struct dockerfile *df, struct lint_report *r)
{
    bool everywhere[ARRAY_SIZE(lint_rules)];
    size_t kept = 0;

    if (!strstr(df->text, "ripcord: ignore"))
        return;
    for (size_t i = 0; i < ARRAY_SIZE(lint_rules); i++)
        everywhere[i] =
            lint_comment_has(df->text, 0, df->len, "ripcord: ignore-file=", lint_rules[i].id);
    for (size_t i = 0; i < r->n; i++) {
        if (everywhere[r->findings[i].rule - lint_rules] || lint_is_ignored(df, &r->findings[i]))
            lint_finding_done(&r->findings[i]);
        else
            r->findings[kept++] = r->findings[i];
    }
    r->n = kept;
}

static int lint_by_place(const void *a, const void *b)
{
    const struct lint_finding *x = a, *y = b;

    if (x->at != y->at)
        return x->at < y->at ? -1 : 1;
    return x->rule < y->rule ? -1 : x->rule > y->rule;
}

/* ---- the walk ---- */

struct lint_state {
    struct lint_walk walk;
    struct config_inputs inputs;
    struct dockerfile_config *ends; /* owned: each stage's configuration at its end */
    char **globals;                 /* owned */
    size_t copied;                  /* config_begin() */
    bool reported;                  /* an error of evaluation was reported: one is enough */
};

static void lint_report_error(struct lint_state *st, size_t at, struct err *err)
{
    if (!st->reported)
        lint_add(st->walk.out, RULE_SYNTAX, at, at, xstrdup(err->msg ? err->msg : "invalid"));
    st->reported = true;
    err_done(err);
}

static void lint_walk_instruction(struct lint_state *st, struct dockerfile_config *c,
                                  const struct dockerfile_instruction *in)
{
    struct lint_walk *w = &st->walk;
    struct shell_script script = {0};
    struct err err = ERR_INIT;
    size_t at;

    w->in = in;
    w->at = c;
    w->script = NULL;
    if (in->kind == DOCKERFILE_RUN) {
        shell_read(in, &script);
        w->script = &script;
    }
    rules_cache(w);
    rules_pin(w);
    rules_secret(w);
    rules_shell(w);
    rules_form(w);
    shell_script_done(&script);
    w->script = NULL;
    if (config_apply(c, w->df, in, &st->inputs, st->globals, &at, &err) < 0)
        lint_report_error(st, at, &err);
}

static void lint_walk_stage(struct lint_state *st, size_t i)
{
    struct lint_walk *w = &st->walk;
    const struct dockerfile_stage *stage = &w->df->stages[i];
    _cleanup_free_ char *base = NULL;
    struct err err = ERR_INIT;
    long on = -1;
    size_t at;

    if (config_base(w->df, i, st->globals, &base, &at, &err) >= 0)
        on =
            strspn(base, "0123456789") == strlen(base) ? -1 : dockerfile_find_stage(w->df, base, i);
    err_done(&err); /* no finding: the value of an ARG without a default comes from --build-arg */
    w->stage = i;
    w->base = base ? base : "";
    w->base_is_stage = on >= 0;
    w->in = stage->from;
    if (config_begin(&st->ends[i], on >= 0 ? &st->ends[on] : NULL, &st->copied, &err) < 0)
        lint_report_error(st, stage->from->at, &err);
    w->at = &st->ends[i];
    rules_from(w);
    for (size_t k = stage->first; k < stage->last; k++)
        lint_walk_instruction(st, &st->ends[i], &w->df->instructions[k]);
    w->in = stage->from;
    w->at = &st->ends[i];
    if (i + 1 == w->df->n_stages)
        rules_end(w);
    w->base = "";
}

/* Checks the ARGs before the first FROM, which belong to no stage. */
static void lint_walk_globals(struct lint_state *st)
{
    static const struct dockerfile_config none;
    struct err err = ERR_INIT;
    size_t at = 0;

    if (config_globals(st->walk.df, &st->inputs, &st->globals, &at, &err) < 0)
        lint_report_error(st, at, &err);
    st->walk.globals = st->globals;
    st->walk.at = &none;
    for (size_t i = 0; i < st->walk.df->n_globals; i++) {
        st->walk.in = &st->walk.df->instructions[i];
        rules_secret(&st->walk);
    }
}

static void lint_walk_file(const struct dockerfile *df, const struct lint_context *context,
                           struct lint_report *ret)
{
    struct lint_state st = {.walk = {.df = df, .context = context, .out = ret, .base = ""}};

    st.ends = xcalloc(df->n_stages, sizeof(*st.ends));
    lint_walk_globals(&st);
    for (size_t i = 0; i < df->n_stages; i++)
        lint_walk_stage(&st, i);
    for (size_t i = 0; i < df->n_stages; i++)
        config_done(&st.ends[i]);
    free(st.ends);
    strv_free(st.globals);
    lint_drop_ignored(df, ret);
    if (ret->n)
        qsort(ret->findings, ret->n, sizeof(*ret->findings), lint_by_place);
}

void lint_check(const char *text, size_t len, const struct lint_context *context,
                struct lint_report *ret)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df = NULL;
    _cleanup_err_ struct err err = ERR_INIT;
    struct lint_finding *f;
    const char *colon;
    size_t at = 0;

    *ret = (struct lint_report){0};
    if (dockerfile_parse(text, len, &df, &at, &err) >= 0) {
        lint_walk_file(df, context, ret);
        return;
    }
    /* The parser's message without its position, which the finding has. */
    colon = strncmp(err.msg, "line ", 5) ? NULL : strchr(err.msg, ':');
    f = lint_add(ret, RULE_SYNTAX, at, at, xstrdup(colon ? colon + 2 : err.msg));
    f->fix = TAKE_PTR(err.hint);
}

/* ---- edits ---- */

static int lint_edit_by_place(const void *a, const void *b)
{
    const struct lint_edit *x = *(const struct lint_edit *const *)a;
    const struct lint_edit *y = *(const struct lint_edit *const *)b;

    return x->at < y->at ? -1 : x->at > y->at;
}

char *lint_apply(const char *text, size_t len, const struct lint_report *r, size_t *ret_len,
                 size_t *ret_fixed)
{
    struct buf b = BUF_INIT(2 * len + MIB(8));
    const struct lint_edit **edits = xcalloc(MAX(r->n, 1), sizeof(*edits));
    size_t n = 0, pos = 0;

    *ret_fixed = 0;
    for (size_t i = 0; i < r->n; i++)
        if (r->findings[i].edit)
            edits[n++] = r->findings[i].edit;
    qsort(edits, n, sizeof(*edits), lint_edit_by_place);
    for (size_t i = 0; i < n; i++) {
        if (edits[i]->at < pos || edits[i]->end > len)
            continue; /* it overlaps an earlier edit: the next run finds it */
        if (buf_append(&b, text + pos, edits[i]->at - pos) < 0 ||
            buf_append_str(&b, edits[i]->text) < 0)
            break;
        pos = edits[i]->end;
        ++*ret_fixed;
    }
    (void)!buf_append(&b, text + pos, len - pos);
    free(edits);
    *ret_len = b.len;
    return buf_steal(&b);
}

struct dockerfile_pos lint_pos(const char *text, size_t at)
{
    struct dockerfile_pos pos = {1, 1};

    for (size_t i = 0; i < at && text[i]; i++, pos.column++)
        if (text[i] == '\n') {
            pos.line++;
            pos.column = 0;
        }
    return pos;
}

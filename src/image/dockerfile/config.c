#include "image/dockerfile/config.h"

#include <string.h>
#include <strings.h>

#include "image/dockerfile/duration.h"
#include "image/dockerfile/expand.h"
#include "image/dockerfile/ports.h"
#include "lib/base/buf.h"
#include "lib/base/command-size.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum {
    CONFIG_VARIABLES_MAX = 16384, /* each ENV and ARG searches all of them */
    CONFIG_COPIES_MAX = 64 << 20, /* bytes of the variables that stages take from earlier ones */
    CONFIG_LABELS_MAX = 4096,
    CONFIG_LABEL_BYTES_MAX = 256 << 10,
};

void config_done(struct dockerfile_config *c)
{
    strv_free(c->env);
    strv_free(c->labels);
    strv_free(c->cmd);
    strv_free(c->entrypoint);
    strv_free(c->shell);
    strv_free(c->ports);
    strv_free(c->volumes);
    strv_free(c->triggers);
    strv_free(c->health.test);
    strv_free(c->scope);
    free(c->user);
    free(c->workdir);
    free(c->stop_signal);
    free(c->author);
    *c = (struct dockerfile_config){0};
}

static char **dockerfile_config_copy_or_null(char *const *v)
{
    return v ? strv_copy(v) : NULL;
}

static char *dockerfile_config_dup_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

/* ARG can hide an ENV of the same name. A stage that is built on this one sees the ENV again. */
static char **dockerfile_config_scope_of(const struct dockerfile_config *base)
{
    char **scope = dockerfile_config_copy_or_null(base->scope);

    for (char **v = base->env; v && *v; v++) {
        _cleanup_free_ char *name = xstrndup(*v, strcspn(*v, "="));

        strv_env_set(&scope, name, *v + strlen(name) + (strchr(*v, '=') != NULL));
    }
    return scope;
}

int config_begin(struct dockerfile_config *ret, const struct dockerfile_config *base,
                 size_t *copied, struct err *err)
{
    *ret = (struct dockerfile_config){0};
    if (!base)
        return 0;
    *copied += command_size(base->env) + command_size(base->scope);
    if (*copied > CONFIG_COPIES_MAX)
        return err_set(err, ERR_LIMIT,
                       "the variables are too large (the limit is %d MiB for all stages together)",
                       CONFIG_COPIES_MAX >> 20);
    ret->env = dockerfile_config_copy_or_null(base->env);
    ret->labels = dockerfile_config_copy_or_null(base->labels);
    ret->cmd = dockerfile_config_copy_or_null(base->cmd);
    ret->entrypoint = dockerfile_config_copy_or_null(base->entrypoint);
    ret->shell = dockerfile_config_copy_or_null(base->shell);
    ret->ports = dockerfile_config_copy_or_null(base->ports);
    ret->volumes = dockerfile_config_copy_or_null(base->volumes);
    ret->scope = dockerfile_config_scope_of(base);
    ret->user = dockerfile_config_dup_or_null(base->user);
    ret->workdir = dockerfile_config_dup_or_null(base->workdir);
    ret->stop_signal = dockerfile_config_dup_or_null(base->stop_signal);
    ret->author = dockerfile_config_dup_or_null(base->author);
    ret->health = base->health;
    ret->health.test = dockerfile_config_copy_or_null(base->health.test);
    return 0;
}

/* ---- variables ---- */

const char *config_get(const struct dockerfile_config *c, const char *name)
{
    return strv_env_get(c->scope, name);
}

static const char *dockerfile_config_get_from_strv(void *userdata, const char *name)
{
    return strv_env_get(userdata, name);
}

static int dockerfile_config_expand_in(char *const *scope, char escape, const char *word,
                                       char **ret, struct err *err)
{
    struct expand x = {
        .escape = escape, .get = dockerfile_config_get_from_strv, .userdata = (void *)scope};

    return expand_word(&x, word, ret, err);
}

int config_expand(const struct dockerfile_config *c, char escape, const char *word, char **ret,
                  struct err *err)
{
    return dockerfile_config_expand_in(c->scope, escape, word, ret, err);
}

/* No command could run with more. A Dockerfile can double a value with every line. */
static int dockerfile_config_check_variables(char *const *v, struct err *err)
{
    char *const *over = command_oversized(v);

    if (over)
        return err_set(err, ERR_LIMIT,
                       "variable '%.*s' is too long (%zu bytes as NAME=VALUE, Linux takes at most "
                       "%d)",
                       (int)MIN(strcspn(*over, "="), (size_t)100), *over, strlen(*over),
                       COMMAND_STRING_MAX - 1);
    if (strv_len(v) > CONFIG_VARIABLES_MAX)
        return err_set(err, ERR_LIMIT, "too many variables (the limit is %d)",
                       CONFIG_VARIABLES_MAX);
    if (command_size(v) > COMMAND_MAX)
        return err_set(err, ERR_LIMIT,
                       "the variables are too large (%zu bytes with a NUL and a pointer for each, "
                       "Linux takes at most %d)",
                       command_size(v), COMMAND_MAX);
    return 0;
}

static int dockerfile_config_check_labels(char *const *v, struct err *err)
{
    size_t total = 0, n = 0;

    for (; v && v[n]; n++)
        total += strlen(v[n]);
    if (n <= CONFIG_LABELS_MAX && total <= CONFIG_LABEL_BYTES_MAX)
        return 0;
    return err_set(err, ERR_LIMIT, "the labels are too large (the limits are %d, and %d KiB)",
                   CONFIG_LABELS_MAX, CONFIG_LABEL_BYTES_MAX >> 10);
}

/* ---- global scope ---- */

static void dockerfile_config_add_predefined(const struct config_inputs *inputs,
                                             const struct dockerfile *df, char ***globals)
{
    const char *os = inputs->os ? inputs->os : "linux";
    const char *arch = inputs->arch ? inputs->arch : "amd64";
    const char *last = df->stages[df->n_stages - 1].name;
    _cleanup_free_ char *platform = xasprintf("%s/%s", os, arch);
    const char *const values[][2] = {
        {"BUILDPLATFORM", platform},
        {"BUILDOS", os},
        {"BUILDOSVERSION", ""},
        {"BUILDARCH", arch},
        {"BUILDVARIANT", ""},
        {"TARGETPLATFORM", platform},
        {"TARGETOS", os},
        {"TARGETOSVERSION", ""},
        {"TARGETARCH", arch},
        {"TARGETVARIANT", ""},
        {"TARGETSTAGE", inputs->target ? inputs->target
                        : last         ? last
                                       : "default"},
    };

    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        const char *given = strv_env_get(inputs->build_args, values[i][0]);

        strv_env_set(globals, values[i][0], given ? given : values[i][1]);
    }
}

/* Splits NAME or NAME=VALUE. Returns the name, new; *ret_value is borrowed, or NULL. */
static char *dockerfile_config_split_arg(const char *word, const char **ret_value)
{
    const char *equals = strchr(word, '=');

    *ret_value = equals ? equals + 1 : NULL;
    return equals ? xstrndup(word, (size_t)(equals - word)) : xstrdup(word);
}

/* The value of an ARG: the build argument, else its default, else the global ARG, else NULL. */
static int dockerfile_config_arg_value(const char *name, const char *otherwise, char *const *scope,
                                       char *const *globals, const struct config_inputs *inputs,
                                       char escape, char **ret, struct err *err)
{
    const char *given = strv_env_get(inputs->build_args, name);

    if (given || !otherwise) {
        if (!given)
            given = strv_env_get(globals, name);
        *ret = dockerfile_config_dup_or_null(given);
        return 0;
    }
    return dockerfile_config_expand_in(scope, escape, otherwise, ret, err);
}

static int dockerfile_config_add_global(const struct dockerfile *df,
                                        const struct dockerfile_word *w,
                                        const struct config_inputs *inputs, char ***globals,
                                        struct err *err)
{
    const char *otherwise;
    _cleanup_free_ char *name = dockerfile_config_split_arg(w->text, &otherwise), *value = NULL;
    int r = dockerfile_config_arg_value(name, otherwise, *globals, NULL, inputs, df->escape, &value,
                                        err);

    if (r < 0)
        return r;
    if (value)
        strv_env_set(globals, name, value);
    return dockerfile_config_check_variables(*globals, err);
}

int config_globals(const struct dockerfile *df, const struct config_inputs *inputs, char ***ret,
                   size_t *ret_at, struct err *err)
{
    _cleanup_strv_ char **globals = NULL;

    dockerfile_config_add_predefined(inputs, df, &globals);
    for (size_t i = 0; i < df->n_globals; i++) {
        const struct dockerfile_instruction *in = &df->instructions[i];

        for (size_t k = 0; k < in->n_words; k++) {
            int r = dockerfile_config_add_global(df, &in->words[k], inputs, &globals, err);

            *ret_at = in->words[k].at;
            if (r < 0)
                return r;
        }
    }
    *ret = TAKE_PTR(globals);
    return 0;
}

int config_base(const struct dockerfile *df, size_t stage, char *const *globals, char **ret,
                size_t *ret_at, struct err *err)
{
    const struct dockerfile_word *w = &df->stages[stage].from->words[0];
    _cleanup_free_ char *base = NULL;
    int r = dockerfile_config_expand_in(globals, df->escape, w->text, &base, err);

    *ret_at = w->at;
    if (r < 0)
        return r;
    if (!*base) {
        err_set(err, ERR_INVALID, "FROM: '%.64s' expands to an empty name", w->text);
        return err_hint(err, "Set a default for the ARG, or pass a value with --build-arg.");
    }
    *ret = TAKE_PTR(base);
    return 0;
}

/* ---- instructions ---- */

struct config_step {
    struct dockerfile_config *c;
    const struct dockerfile *df;
    const struct dockerfile_instruction *in;
    const struct config_inputs *inputs;
    char *const *globals;
    size_t *ret_at;
};

static int dockerfile_config_expand_at(const struct config_step *s, const struct dockerfile_word *w,
                                       char **ret, struct err *err)
{
    *s->ret_at = w->at;
    return config_expand(s->c, s->df->escape, w->text, ret, err);
}

/* All words are expanded first: an instruction does not see the values that it sets. */
static int dockerfile_config_apply_pairs(const struct config_step *s, struct err *err)
{
    _cleanup_strv_ char **words = NULL;
    struct dockerfile_config *c = s->c;

    for (size_t i = 0; i < s->in->n_words; i++) {
        char *word;
        int r = dockerfile_config_expand_at(s, &s->in->words[i], &word, err);

        if (r < 0)
            return r;
        strv_push(&words, word);
    }
    for (size_t i = 0; i < s->in->n_words; i += 2) {
        if (s->in->kind == DOCKERFILE_LABEL) {
            strv_env_set(&c->labels, words[i], words[i + 1]);
        } else {
            strv_env_set(&c->env, words[i], words[i + 1]);
            strv_env_set(&c->scope, words[i], words[i + 1]);
        }
    }
    if (s->in->kind == DOCKERFILE_LABEL)
        return dockerfile_config_check_labels(c->labels, err);
    return dockerfile_config_check_variables(c->scope, err);
}

static int dockerfile_config_apply_arg(const struct config_step *s, struct err *err)
{
    for (size_t i = 0; i < s->in->n_words; i++) {
        const char *otherwise;
        _cleanup_free_ char *name = dockerfile_config_split_arg(s->in->words[i].text, &otherwise),
                            *value = NULL;
        int r = dockerfile_config_arg_value(name, otherwise, s->c->scope, s->globals, s->inputs,
                                            s->df->escape, &value, err);

        *s->ret_at = s->in->words[i].at;
        if (r < 0)
            return r;
        if (value)
            strv_env_set(&s->c->scope, name, value);
    }
    return dockerfile_config_check_variables(s->c->scope, err);
}

/* The exec form as written, or the shell form after the shell. from: index of the first word. */
static char **dockerfile_config_command_of(const struct config_step *s, size_t from,
                                           bool with_shell)
{
    static char *const standard[] = {(char *)"/bin/sh", (char *)"-c", NULL};
    char **v = NULL;

    if (!s->in->json && with_shell)
        v = strv_copy(s->c->shell ? s->c->shell : standard);
    else
        v = strv_copy(NULL);
    for (size_t i = from; i < s->in->n_words; i++)
        strv_add(&v, s->in->words[i].text);
    if (!s->in->json && s->in->n_words == from)
        strv_add(&v, "");
    return v;
}

static int dockerfile_config_apply_command(const struct config_step *s, struct err *err)
{
    struct dockerfile_config *c = s->c;
    char **v = dockerfile_config_command_of(s, 0, s->in->kind != DOCKERFILE_SHELL);

    (void)err;
    if (s->in->kind == DOCKERFILE_SHELL) {
        strv_free(c->shell);
        c->shell = v;
    } else if (s->in->kind == DOCKERFILE_CMD) {
        strv_free(c->cmd);
        c->cmd = v;
        c->cmd_is_own = true;
    } else {
        strv_free(c->entrypoint);
        c->entrypoint = v;
        if (!c->cmd_is_own)
            c->cmd = strv_free(c->cmd);
    }
    return 0;
}

/* As Go's path.Join(): without ".", ".." and doubled slashes. */
static char *dockerfile_config_join_path(const char *base, const char *rel)
{
    _cleanup_free_ char *both = xasprintf("%s/%s", base, rel);
    _cleanup_strv_ char **parts = NULL;
    _cleanup_free_ char *joined = NULL;

    for (const char *p = both; *p;) {
        size_t n;

        p += strspn(p, "/");
        n = strcspn(p, "/");
        if (n == 2 && !strncmp(p, "..", 2))
            strv_pop(parts);
        else if (n && !(n == 1 && *p == '.'))
            strv_push(&parts, xstrndup(p, n));
        p += n;
    }
    joined = parts ? strv_join(parts, "/") : xstrdup("");
    return xasprintf("/%s", joined);
}

static void dockerfile_config_set_workdir(struct dockerfile_config *c, const char *path)
{
    const char *current = c->workdir ? c->workdir : "/";
    char *next = *path == '/' ? xstrdup(path)
                 : *path      ? dockerfile_config_join_path(current, path)
                              : xstrdup(current);

    free(c->workdir);
    c->workdir = next;
}

/* A number, TERM, SIGTERM, or a real-time signal: RTMIN+3. */
static int dockerfile_config_check_signal(const char *name, struct err *err)
{
    _cleanup_free_ char *upper = xstrdup(name);
    const char *p = upper;
    uint32_t n;
    int sig;

    for (char *q = upper; *q; q++)
        if (*q >= 'a' && *q <= 'z')
            *q = (char)(*q - 'a' + 'A');
    if (strspn(p, "0123456789") == strlen(p) && *p)
        return parse_u32(p, 1, 0x7fffffff, &n, err);
    if (!strncmp(p, "SIG", 3))
        p += 3;
    if (STREQ(p, "RTMIN") || STREQ(p, "RTMAX") || STREQ(p, "CLD") || STREQ(p, "IOT") ||
        STREQ(p, "POLL") || STREQ(p, "IO"))
        return 0;
    if (!strncmp(p, "RTMIN+", 6))
        return parse_u32(p + 6, 1, 15, &n, err);
    if (!strncmp(p, "RTMAX-", 6))
        return parse_u32(p + 6, 1, 14, &n, err);
    return parse_signal(p, &sig, err);
}

static int dockerfile_config_apply_string(const struct config_step *s, struct err *err)
{
    _cleanup_free_ char *value = NULL;
    struct dockerfile_config *c = s->c;
    char **slot = s->in->kind == DOCKERFILE_USER ? &c->user : &c->stop_signal;
    int r = s->in->kind == DOCKERFILE_MAINTAINER
                ? 0
                : dockerfile_config_expand_at(s, &s->in->words[0], &value, err);

    if (r < 0)
        return r;
    if (s->in->kind == DOCKERFILE_WORKDIR) {
        dockerfile_config_set_workdir(c, value);
        return 0;
    }
    if (s->in->kind == DOCKERFILE_STOPSIGNAL && dockerfile_config_check_signal(value, err) < 0)
        return -ERR_INVALID;
    if (s->in->kind == DOCKERFILE_MAINTAINER) {
        slot = &c->author;
        value = xstrdup(s->in->words[0].text);
    }
    free(*slot);
    *slot = TAKE_PTR(value);
    return 0;
}

static int dockerfile_config_apply_ports(const struct config_step *s, struct err *err)
{
    struct expand x = {.escape = s->df->escape,
                       .get = dockerfile_config_get_from_strv,
                       .userdata = (void *)s->c->scope};

    for (size_t i = 0; i < s->in->n_words; i++) {
        _cleanup_strv_ char **specs = NULL;
        int r = expand_words(&x, s->in->words[i].text, &specs, err);

        *s->ret_at = s->in->words[i].at;
        if (r < 0)
            return r;
        for (size_t k = 0; specs && specs[k]; k++) {
            r = ports_add(specs[k], &s->c->ports, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static int dockerfile_config_apply_volumes(const struct config_step *s, struct err *err)
{
    for (size_t i = 0; i < s->in->n_words; i++) {
        _cleanup_free_ char *path = NULL;
        int r = dockerfile_config_expand_at(s, &s->in->words[i], &path, err);

        if (r < 0)
            return r;
        if (!*path)
            return err_set(err, ERR_INVALID, "VOLUME: '%s' expands to an empty path",
                           s->in->words[i].text);
        if (!strv_contains(s->c->volumes, path))
            strv_add(&s->c->volumes, path);
    }
    return 0;
}

static int64_t dockerfile_config_flag_time(const struct dockerfile_instruction *in,
                                           const char *name)
{
    const char *value = dockerfile_flag(in, name);
    int64_t ns = 0;

    if (value && *value)
        (void)!duration_parse(value, &ns, NULL); /* check.c has checked it */
    return ns;
}

static int dockerfile_config_apply_health(const struct config_step *s, struct err *err)
{
    struct config_health *h = &s->c->health;
    const char *retries = dockerfile_flag(s->in, "retries");
    bool none = !strcasecmp(s->in->words[0].text, "NONE");
    char **command = none ? NULL : dockerfile_config_command_of(s, 1, false);

    (void)err;
    strv_free(h->test);
    *h = (struct config_health){0};
    strv_add(&h->test, none ? "NONE" : s->in->json ? "CMD" : "CMD-SHELL");
    for (size_t i = 0; command && command[i]; i++)
        strv_add(&h->test, command[i]);
    strv_free(command);
    if (none)
        return 0;
    h->interval = dockerfile_config_flag_time(s->in, "interval");
    h->timeout = dockerfile_config_flag_time(s->in, "timeout");
    h->start_period = dockerfile_config_flag_time(s->in, "start-period");
    h->start_interval = dockerfile_config_flag_time(s->in, "start-interval");
    h->retries = retries ? (int)strtol(retries, NULL, 10) : 0;
    return 0;
}

static int dockerfile_config_apply_trigger(const struct config_step *s, struct err *err)
{
    const struct dockerfile_line *l = &s->in->trigger->line;
    _cleanup_buf_ struct buf b = BUF_INIT(DOCKERFILE_SIZE_MAX * 2);
    int r = buf_append(&b, l->text, l->len);

    for (size_t i = 0; i < s->in->n_heredocs && r >= 0; i++)
        r = buf_appendf(&b, "\n%s%s", s->in->heredocs[i].content, s->in->heredocs[i].name);
    if (r < 0)
        return err_set(err, ERR_LIMIT, "the ONBUILD instruction is too long");
    strv_push(&s->c->triggers, buf_steal(&b));
    return 0;
}

/* Expands the words of COPY and ADD and the flags that take variables, to find errors. */
static int dockerfile_config_check_files(const struct config_step *s, struct err *err)
{
    static const char *const names[] = {"chown", "chmod", "checksum"};

    for (size_t i = 0; i < s->in->n_words; i++) {
        _cleanup_free_ char *value = NULL;
        int r = dockerfile_config_expand_at(s, &s->in->words[i], &value, err);

        if (r < 0)
            return r;
    }
    *s->ret_at = s->in->at;
    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *flag = dockerfile_flag(s->in, names[i]);
        _cleanup_free_ char *value = NULL;

        if (flag && config_expand(s->c, s->df->escape, flag, &value, err) < 0)
            return -ERR_INVALID;
    }
    return 0;
}

static int dockerfile_config_check_mounts(const struct config_step *s, struct err *err)
{
    for (size_t i = 0; i < s->in->n_flags; i++) {
        const struct dockerfile_flag *f = &s->in->flags[i];
        _cleanup_(mount_done) struct dockerfile_mount m = {0};
        _cleanup_free_ char *value = NULL;
        int r;

        if (!STREQ(f->name, "mount") || !strchr(f->value, '$'))
            continue;
        *s->ret_at = f->at;
        r = config_expand(s->c, s->df->escape, f->value, &value, err);
        if (r < 0)
            return r;
        r = mount_parse(value, false, &m, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int config_apply(struct dockerfile_config *c, const struct dockerfile *df,
                 const struct dockerfile_instruction *in, const struct config_inputs *inputs,
                 char *const *globals, size_t *ret_at, struct err *err)
{
    const struct config_step s = {c, df, in, inputs, globals, ret_at};

    *ret_at = in->at;
    switch (in->kind) {
    case DOCKERFILE_ENV:
    case DOCKERFILE_LABEL:
        return dockerfile_config_apply_pairs(&s, err);
    case DOCKERFILE_ARG:
        return dockerfile_config_apply_arg(&s, err);
    case DOCKERFILE_CMD:
    case DOCKERFILE_ENTRYPOINT:
    case DOCKERFILE_SHELL:
        return dockerfile_config_apply_command(&s, err);
    case DOCKERFILE_MAINTAINER:
    case DOCKERFILE_STOPSIGNAL:
    case DOCKERFILE_USER:
    case DOCKERFILE_WORKDIR:
        return dockerfile_config_apply_string(&s, err);
    case DOCKERFILE_EXPOSE:
        return dockerfile_config_apply_ports(&s, err);
    case DOCKERFILE_VOLUME:
        return dockerfile_config_apply_volumes(&s, err);
    case DOCKERFILE_HEALTHCHECK:
        return dockerfile_config_apply_health(&s, err);
    case DOCKERFILE_ONBUILD:
        return dockerfile_config_apply_trigger(&s, err);
    case DOCKERFILE_ADD:
    case DOCKERFILE_COPY:
        return dockerfile_config_check_files(&s, err);
    case DOCKERFILE_RUN:
        return dockerfile_config_check_mounts(&s, err);
    case DOCKERFILE_FROM:
        break;
    }
    return 0;
}

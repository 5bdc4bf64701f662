#include "cli/options.h"

#include <string.h>

#include "cli/aliases.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { OPTIONS_MAX = 64 };

void args_done(struct cli_args *a)
{
    free(a->values);
    free(a->words);
    *a = (struct cli_args)CLI_ARGS_INIT;
}

const struct cli_option *cli_option_at(const struct cli_command *cmd, size_t i)
{
    for (const struct cli_group *const *g = cmd->groups; g && *g; g++)
        for (const struct cli_option *o = (*g)->options; o->name; o++)
            if (i-- == 0)
                return o;
    for (const struct cli_option *o = cli_global_group.options; o->name; o++)
        if (i-- == 0)
            return o;
    return NULL;
}

static const struct cli_option *cli_options_find_long(const struct cli_command *cmd,
                                                      const char *name, size_t len)
{
    const struct cli_option *o;

    for (size_t i = 0; (o = cli_option_at(cmd, i)); i++)
        if (strlen(o->name) == len && memcmp(o->name, name, len) == 0)
            return o;
    return NULL;
}

static const struct cli_option *cli_options_find_short(const struct cli_command *cmd, char letter)
{
    const struct cli_option *o;

    for (size_t i = 0; (o = cli_option_at(cmd, i)); i++)
        if (o->letter && o->letter == letter)
            return o;
    return NULL;
}

static int cli_options_unknown(const struct cli_command *cmd, const char *word, size_t len,
                               struct err *err)
{
    _cleanup_free_ char *name = xstrndup(word, len);
    const char *names[OPTIONS_MAX], *near;
    const struct cli_option *o;
    size_t n = 0;

    for (size_t i = 0; (o = cli_option_at(cmd, i)) && n < OPTIONS_MAX; i++)
        names[n++] = o->name;
    near = strv_nearest(name, names, n);
    err_set(err, ERR_INVALID, "unknown option '--%s' for 'ripcord %s'", name, cmd->name);
    if (near)
        return err_hint(err, "Did you mean '--%s'? Run 'ripcord %s --help' to list the options.",
                        near, cmd->name);
    return err_hint(err, "Run 'ripcord %s --help' to list the options.", cmd->name);
}

/*
 * An option that the command does not have: *ret becomes ours that it stands for. Returns 1 when
 * it has no effect here. word: with its dashes.
 */
static int cli_options_foreign(const struct cli_command *cmd, const char *word, size_t len,
                               const struct cli_option **ret, struct err *err)
{
    const struct alias_option *alias = alias_option(cmd, word, len);

    if (alias && alias->ours) {
        *ret = cli_options_find_long(cmd, alias->ours, strlen(alias->ours));
        return *ret == NULL;
    }
    if (alias) {
        err_set(err, ERR_INVALID, "%s: %s", alias->name, alias->problem);
        return err_hint(err, "%s", alias->hint);
    }
    if (word[1] == '-')
        return cli_options_unknown(cmd, word + 2, len - 2, err);
    err_set(err, ERR_INVALID, "unknown option '%.*s' for 'ripcord %s'", (int)len, word, cmd->name);
    return err_hint(err, "Run 'ripcord %s --help' to list the options.", cmd->name);
}

static void cli_options_add_value(struct cli_args *a, const struct cli_option *o, const char *value)
{
    a->values = xreallocarray(a->values, a->n_values + 1, sizeof(*a->values));
    a->values[a->n_values++] = (struct cli_value){.option = o, .value = value};
}

static void cli_options_add_word(struct cli_args *a, char *word)
{
    a->words = xreallocarray(a->words, (size_t)a->n_words + 2, sizeof(*a->words));
    a->words[a->n_words++] = word;
    a->words[a->n_words] = NULL;
}

static int cli_options_missing_value(const struct cli_option *o, struct err *err)
{
    return err_set(err, ERR_INVALID, "option '--%s' needs a value (%s)", o->name, o->arg);
}

/* argv[*i] is "--name" or "--name=value". */
static int cli_options_parse_long(const struct cli_command *cmd, int argc, char **argv, int *i,
                                  struct cli_args *a, struct err *err)
{
    const char *name = argv[*i] + 2, *eq = strchr(name, '=');
    size_t len = eq ? (size_t)(eq - name) : strlen(name);
    const struct cli_option *o = cli_options_find_long(cmd, name, len);
    int r = o ? 0 : cli_options_foreign(cmd, argv[*i], len + 2, &o, err);

    if (r > 0 && eq)
        return err_set(err, ERR_INVALID, "option '--%.*s' takes no value", (int)len, name);
    if (r != 0)
        return MIN(r, 0);
    if (!o->arg && eq)
        return err_set(err, ERR_INVALID, "option '--%s' takes no value", o->name);
    if (o->arg && !eq && *i + 1 >= argc)
        return cli_options_missing_value(o, err);
    cli_options_add_value(a, o, !o->arg ? NULL : eq ? eq + 1 : argv[++*i]);
    return 0;
}

/* argv[*i] is "-x", "-xyz" (flags) or "-oVALUE". */
static int cli_options_parse_short(const struct cli_command *cmd, int argc, char **argv, int *i,
                                   struct cli_args *a, struct err *err)
{
    for (const char *p = argv[*i] + 1; *p; p++) {
        const struct cli_option *o = cli_options_find_short(cmd, *p);
        const char word[] = {'-', *p, '\0'};
        int r = o ? 0 : cli_options_foreign(cmd, word, 2, &o, err);

        if (r < 0)
            return r;
        if (r > 0)
            continue;
        if (!o->arg) {
            cli_options_add_value(a, o, NULL);
            continue;
        }
        if (!p[1] && *i + 1 >= argc)
            return cli_options_missing_value(o, err);
        cli_options_add_value(a, o, p[1] ? p + 1 : argv[++*i]);
        return 0;
    }
    return 0;
}

static int cli_options_check_count(const struct cli_command *cmd, const struct cli_args *a,
                                   struct err *err)
{
    if (args_has(a, "help"))
        return 0;
    if (a->n_words >= cmd->min_args && a->n_words <= cmd->max_args)
        return 0;
    if (!a->words || a->n_words < cmd->min_args)
        err_set(err, ERR_INVALID, "'ripcord %s' needs more arguments", cmd->name);
    else
        err_set(err, ERR_INVALID, "'ripcord %s': unexpected argument '%s'", cmd->name,
                a->words[cmd->max_args]);
    if (strstr(cmd->usage, " | ")) /* one line for each action would be too long */
        return err_hint(err, "Run 'ripcord %s --help' to see its actions.", cmd->name);
    return err_hint(err, "Usage: ripcord %s", cmd->usage);
}

int args_parse(const struct cli_command *cmd, int argc, char **argv, struct cli_args *ret,
               struct err *err)
{
    _cleanup_args_ struct cli_args a = CLI_ARGS_INIT;
    bool options = !(cmd->flags & CLI_PASS_THROUGH);
    int r = 0;

    for (int i = 0; i < argc; i++) {
        const char *w = argv[i];

        if (!options || w[0] != '-' || !w[1]) {
            if (cmd->stop_after >= 0 && a.n_words >= cmd->stop_after)
                options = false;
            cli_options_add_word(&a, argv[i]);
        } else if (STREQ(w, "--")) {
            options = false;
        } else if (w[1] == '-') {
            r = cli_options_parse_long(cmd, argc, argv, &i, &a, err);
        } else {
            r = cli_options_parse_short(cmd, argc, argv, &i, &a, err);
        }
        if (r < 0)
            return r;
    }
    r = cli_options_check_count(cmd, &a, err);
    if (r < 0)
        return r;
    *ret = a;
    a = (struct cli_args)CLI_ARGS_INIT;
    return 0;
}

static bool cli_options_is_global(const struct cli_option *option)
{
    for (const struct cli_option *o = cli_global_group.options; o->name; o++)
        if (o == option)
            return true;
    return false;
}

int args_check_action(const struct cli_command *cmd, const char *action, const char *options,
                      const struct cli_args *a, struct err *err)
{
    for (size_t i = 0; i < a->n_values; i++) {
        const struct cli_option *o = a->values[i].option;
        char word[64];

        snprintf(word, sizeof(word), " %s ", o->name);
        if (!cli_options_is_global(o) && !strstr(options, word))
            return err_set(err, ERR_INVALID, "'ripcord %s %s' does not take option '--%s'",
                           cmd->name, action, o->name);
    }
    return 0;
}

bool args_has(const struct cli_args *a, const char *name)
{
    for (size_t i = 0; i < a->n_values; i++)
        if (STREQ(a->values[i].option->name, name))
            return true;
    return false;
}

const char *args_next(const struct cli_args *a, const char *name, size_t *iter)
{
    while (*iter < a->n_values) {
        const struct cli_value *v = &a->values[(*iter)++];

        if (STREQ(v->option->name, name))
            return v->value;
    }
    return NULL;
}

const char *args_get(const struct cli_args *a, const char *name)
{
    const char *v, *last = NULL;

    for (size_t i = 0; (v = args_next(a, name, &i));)
        last = v;
    return last;
}

static int options_check_range(const char *name, uint64_t v, uint64_t min, uint64_t max,
                               enum parse_unit unit, struct err *err)
{
    char option[64];

    snprintf(option, sizeof(option), "--%s", name);
    return parse_check_range(option, v, min, max, unit, err);
}

int args_size(const struct cli_args *a, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
              struct err *err)
{
    const char *text = args_get(a, name);
    uint64_t v;
    int r;

    if (!text)
        return 0;
    if (parse_size(text, &v, err) < 0)
        return err_wrap(err, "--%s", name);
    r = options_check_range(name, v, min, max, PARSE_BYTES, err);
    if (r < 0)
        return r;
    *ret = v;
    return 0;
}

int args_duration_ms(const struct cli_args *a, const char *name, uint64_t max, uint64_t *ret,
                     struct err *err)
{
    const char *text = args_get(a, name);
    uint64_t usec;
    int r;

    if (!text)
        return 0;
    if (parse_duration(text, &usec, err) < 0)
        return err_wrap(err, "--%s", name);
    r = options_check_range(name, usec / USEC_PER_MSEC, 1, max, PARSE_MSEC, err);
    if (r < 0)
        return r;
    *ret = usec / USEC_PER_MSEC;
    return 0;
}

int args_u64(const struct cli_args *a, const char *name, uint64_t min, uint64_t max, uint64_t *ret,
             struct err *err)
{
    const char *text = args_get(a, name);
    uint64_t v;
    int r;

    if (!text)
        return 0;
    if (parse_u64(text, 0, UINT64_MAX, &v, err) < 0)
        return err_wrap(err, "--%s", name);
    r = options_check_range(name, v, min, max, PARSE_COUNT, err);
    if (r < 0)
        return r;
    *ret = v;
    return 0;
}

static int options_check_word(const char *name, const char *v, const char *const *words, size_t n,
                              struct err *err)
{
    const char *near = strv_nearest(v, words, n);
    _cleanup_strv_ char **list = NULL;
    _cleanup_free_ char *all = NULL;

    for (size_t i = 0; i < n; i++) {
        if (STREQ(words[i], v))
            return 0;
        strv_add(&list, words[i]);
    }
    all = strv_join(list, ", ");
    err_set(err, ERR_INVALID, "--%s: unknown value '%s'; supported: %s", name, v, all);
    return near ? err_hint(err, "Did you mean '%s'?", near) : -ERR_INVALID;
}

int args_check_words(const struct cli_args *a, const char *name, const char *const *words, size_t n,
                     struct err *err)
{
    const char *v;

    for (size_t i = 0; (v = args_next(a, name, &i));) {
        int r = options_check_word(name, v, words, n, err);

        if (r < 0)
            return r;
    }
    return 0;
}

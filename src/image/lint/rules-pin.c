/*
 * Versions that are not said: the same Dockerfile gives another image tomorrow.
 */
#include <string.h>

#include "image/lint/rules.h"
#include "image/lint/tool.h"
#include "lib/base/xalloc.h"

/* ---- FROM ---- */

void rules_from(const struct lint_walk *w)
{
    const struct dockerfile_word *word = &w->in->words[0];
    const char *slash = strrchr(w->base, '/'), *tag = strrchr(slash ? slash : w->base, ':');

    if (w->base_is_stage || !*w->base || STREQ(w->base, "scratch") || STREQ(w->base, "host") ||
        strchr(w->base, '@'))
        return;
    if (tag && !STREQ(tag, ":latest"))
        return;
    lint_set_fix(lint_find(w, RULE_UNPINNED_BASE, word->at, word->end,
                           tag ? "'%s' uses the tag 'latest', which changes over time"
                               : "'%s' has no tag, so it means 'latest', which changes over time",
                           w->base),
                 "Add a version, as in IMAGE:1.2, or a digest, as in IMAGE:1.2@sha256:….");
}

/* ---- packages ---- */

/* Options that take a word which is no package. */
static bool rules_pin_takes_word(const char *option)
{
    static const char with_word[] =
        "-r --requirement -c --constraint -i --index-url --extra-index-url -f --find-links -t "
        "--target "
        "--prefix --root --cache-dir --cache --registry -o -q --platform --python-version "
        "--trusted-host "
        "--config-settings --index --only-binary --no-binary --prefix-dir --loglevel";

    return !strchr(option, '=') && tool_has_word(with_word, option) && !STREQ(option, "-q");
}

typedef bool (*pinned_fn)(const char *package);

static bool rules_pin_is_path_or_url(const char *s)
{
    return *s == '.' || *s == '/' || *s == '$' || strstr(s, "://") || strstr(s, "git+") ||
           strstr(s, ".whl") || strstr(s, ".tar.gz") || strstr(s, ".tgz");
}

static bool rules_pin_pip_is_pinned(const char *s)
{
    return rules_pin_is_path_or_url(s) || strstr(s, "==") || strstr(s, " @ ") || strstr(s, "~=") ||
           strchr(s, '$');
}

static bool rules_pin_npm_is_pinned(const char *s)
{
    const char *at = strchr(s + 1, '@'); /* the first may be a scope's */

    return rules_pin_is_path_or_url(s) || strchr(s, '$') ||
           (at && !STREQ(at, "@latest") && !STREQ(at, "@*") && at[1]);
}

static bool rules_pin_apt_is_pinned(const char *s)
{
    return rules_pin_is_path_or_url(s) || strchr(s, '=') || strchr(s, '$') || strchr(s, '/') ||
           strstr(s, ".deb");
}

/* clang-format off */
static const struct {
    const char *tool, *subcommands;
    enum lint_rule_id rule;
    pinned_fn pinned;
    const char *how;
} pins[] = {
    {"pip", "install", RULE_UNPINNED_PIP, rules_pin_pip_is_pinned, "NAME==VERSION, or -r requirements.txt with versions"},
    {"uv", "pip", RULE_UNPINNED_PIP, rules_pin_pip_is_pinned, "NAME==VERSION, or -r requirements.txt with versions"},
    {"npm", "install i add", RULE_UNPINNED_NPM, rules_pin_npm_is_pinned, "NAME@VERSION, or npm ci with a lock file"},
    {"pnpm", "add", RULE_UNPINNED_NPM, rules_pin_npm_is_pinned, "NAME@VERSION"},
    {"yarn", "add", RULE_UNPINNED_NPM, rules_pin_npm_is_pinned, "NAME@VERSION"},
    {"apt", "install", RULE_UNPINNED_APT, rules_pin_apt_is_pinned, "NAME=VERSION, or a base image by digest with a snapshot archive"},
};
/* clang-format on */

/* The first package without a version, behind `skip` words; *ret_n counts them all. */
static const struct shell_word *rules_pin_find_unpinned(const struct shell_command *c, size_t skip,
                                                        pinned_fn pinned, size_t *ret_n)
{
    const struct shell_word *w, *first = NULL;

    *ret_n = 0;
    for (size_t i = skip; (w = tool_arg(c, i)); i++) {
        if (*w->text == '-') {
            i += rules_pin_takes_word(w->text);
            continue;
        }
        if (!*w->text || pinned(w->text))
            continue;
        if (!first)
            first = w;
        ++*ret_n;
    }
    return first;
}

/* How many words up to and with the subcommand: `uv pip install` has two. */
static size_t rules_pin_words_before(const struct shell_command *c)
{
    const struct shell_word *w;

    for (size_t i = 0; (w = tool_arg(c, i)); i++) {
        const struct shell_word *next = tool_arg(c, i + 1);

        if (*w->text != '-')
            return i + (STREQ(w->text, "pip") && next && STREQ(next->text, "install") ? 2 : 1);
    }
    return 0;
}

static void rules_pin_check_command(const struct lint_walk *w, const struct shell_command *c,
                                    const struct lint_tool *t, size_t k)
{
    size_t skip = rules_pin_words_before(c), n;
    const struct shell_word *sub = skip ? tool_arg(c, skip - 1) : NULL, *first;

    if (!sub || !(tool_has_word(pins[k].subcommands, sub->text) ||
                  (STREQ(t->name, "uv") && STREQ(sub->text, "install"))))
        return;
    first = rules_pin_find_unpinned(c, skip, pins[k].pinned, &n);
    if (!first)
        return;
    lint_set_fix(lint_find(w, pins[k].rule, first->at, first->end, "'%s'%s no version", first->text,
                           n > 1 ? " and other packages of this command have" : " has"),
                 "Write %s.", pins[k].how);
}

void rules_pin(const struct lint_walk *w)
{
    for (size_t i = 0; w->script && i < w->script->n; i++) {
        const struct shell_command *c = &w->script->commands[i];
        bool installs;
        const struct lint_tool *t = tool_of(c, &installs);

        for (size_t k = 0; t && k < ARRAY_SIZE(pins); k++)
            if (STREQ(pins[k].tool, t->name))
                rules_pin_check_command(w, c, t, k);
    }
}

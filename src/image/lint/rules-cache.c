/*
 * Cache mounts without effect. The first rule finds a mount for pip's cache together with
 * --no-cache-dir on the same RUN (docs/findings.md).
 */
#include <string.h>

#include "image/lint/rules.h"
#include "image/lint/tool.h"
#include "lib/base/xalloc.h"

/* The target with its variables expanded; new. */
static char *rules_cache_target_of(const struct lint_walk *w, const struct dockerfile_mount *m)
{
    char *target = NULL;

    if (!m->target || config_expand(w->at, w->df->escape, m->target, &target, NULL) < 0)
        return xstrdup("");
    return target;
}

static bool rules_cache_is_cache(const struct dockerfile_mount *m)
{
    return m->type == MOUNT_CACHE;
}

/* The cache mount of this RUN that is the tool's cache, or whose target contains the tool's
 * name. */
static const struct dockerfile_mount *rules_cache_mount_for(const struct lint_walk *w,
                                                            const struct lint_tool *t,
                                                            const struct shell_command *c)
{
    for (size_t i = 0; i < w->in->n_mounts; i++) {
        const struct dockerfile_mount *m = &w->in->mounts[i];
        _cleanup_free_ char *target = rules_cache_target_of(w, m);

        if (rules_cache_is_cache(m) && *target &&
            (tool_uses(t, w->at, c, target) || strstr(target, t->name)))
            return m;
    }
    return NULL;
}

static bool rules_cache_has_cache_mount(const struct lint_walk *w)
{
    for (size_t i = 0; i < w->in->n_mounts; i++)
        if (rules_cache_is_cache(&w->in->mounts[i]))
            return true;
    return false;
}

/* ---- cache-defeated ---- */

/* Removes a word and the blanks before it. */
static void rules_cache_remove_word(struct lint_finding *f, const struct shell_command *c,
                                    const struct shell_word *word)
{
    size_t i = (size_t)(word - c->words);

    if (i > 0)
        lint_set_edit(f, c->words[i - 1].end, word->end, xstrdup(""));
    else if (c->n > 1)
        lint_set_edit(f, word->at, c->words[1].at, xstrdup(""));
}

/* Removes a command and the && before it. */
static void rules_cache_remove_command(const struct lint_walk *w, struct lint_finding *f, size_t i)
{
    const struct shell_command *c = &w->script->commands[i];
    const struct shell_command *prev = i ? c - 1 : NULL;

    if (prev && c->chained && !c->to_pipe && prev->n)
        lint_set_edit(f, prev->words[prev->n - 1].end, c->words[c->n - 1].end, xstrdup(""));
}

static void rules_cache_check_off_flags(const struct lint_walk *w, const struct lint_tool *t,
                                        const struct shell_command *c,
                                        const struct dockerfile_mount *m)
{
    for (size_t i = c->first + 1; i < c->n; i++) {
        const struct shell_word *word = &c->words[i];
        _cleanup_free_ char *name = xstrndup(word->text, strcspn(word->text, "="));
        struct lint_finding *f;

        if (*name != '-' || !tool_has_word(t->off, name))
            continue;
        f = lint_find(w, RULE_CACHE_DEFEATED, word->at, word->end,
                      "'%s' makes %s ignore the cache mounted at '%s'", name, t->name, m->target);
        lint_set_fix(f, "Remove '%s'. The cache mount is not part of the image.", name);
        rules_cache_remove_word(f, c, word);
    }
}

static bool rules_cache_means_no(const char *value)
{
    return !*value || STREQ(value, "0") || STREQ(value, "false") || STREQ(value, "off") ||
           STREQ(value, "no");
}

static void rules_cache_check_off_variable(const struct lint_walk *w, const struct lint_tool *t,
                                           const struct shell_command *c,
                                           const struct dockerfile_mount *m)
{
    const struct shell_word *word = NULL;
    const char *value = t->off_variable ? shell_assigned(c, t->off_variable, &word) : NULL;
    struct lint_finding *f;

    if (value && !rules_cache_means_no(value)) {
        f = lint_find(w, RULE_CACHE_DEFEATED, word->at, word->end,
                      "%s makes %s ignore the cache mounted at '%s'", t->off_variable, t->name,
                      m->target);
        lint_set_fix(f, "Remove %s.", t->off_variable);
        if (word + 1 < c->words + c->n)
            lint_set_edit(f, word->at, word[1].at, xstrdup(""));
        return;
    }
    value = !value && t->off_variable ? config_get(w->at, t->off_variable) : NULL;
    if (!value || rules_cache_means_no(value))
        return;
    f = lint_find(w, RULE_CACHE_DEFEATED, m->at, m->end,
                  "%s is set above and makes %s ignore the cache mounted at '%s'", t->off_variable,
                  t->name, m->target);
    lint_set_fix(f, "Remove %s, or set it to 0 for this command.", t->off_variable);
}

/* npm --cache /elsewhere */
static void rules_cache_check_other_folder(const struct lint_walk *w, const struct lint_tool *t,
                                           const struct shell_command *c,
                                           const struct dockerfile_mount *m)
{
    const struct shell_word *option = t->option ? shell_flag(c, t->option) : NULL;
    const char *equals = option ? strchr(option->text, '=') : NULL;
    _cleanup_free_ char *target = rules_cache_target_of(w, m);
    const char *folder;

    if (!option || (!equals && option + 1 == c->words + c->n))
        return;
    folder = equals ? equals + 1 : option[1].text;
    if (strchr(folder, '$') || tool_paths_meet(folder, target))
        return;
    lint_set_fix(lint_find(w, RULE_CACHE_DEFEATED, option->at, equals ? option->end : option[1].end,
                           "%s caches in '%s', but the mount is at '%s'", t->name, folder,
                           m->target),
                 "Mount the cache at '%s', or remove '%s'.", folder, t->option);
}

static void rules_cache_check_clean(const struct lint_walk *w, size_t i, const struct lint_tool *t,
                                    const struct dockerfile_mount *m)
{
    const struct shell_command *c = &w->script->commands[i];
    _cleanup_free_ char *target = rules_cache_target_of(w, m);
    struct lint_finding *f;

    /* apt stores packages and lists in different folders: `clean` empties only the packages. */
    if (STREQ(t->name, "apt") && !tool_paths_meet(target, "/var/cache/apt"))
        return;
    f = lint_find(w, RULE_CACHE_DEFEATED, c->words[c->first].at, c->words[c->n - 1].end,
                  "%s empties the cache mounted at '%s'", t->name, m->target);
    lint_set_fix(f, "Remove the command. The cache mount is not part of the image.");
    rules_cache_remove_command(w, f, i);
}

/* An argument of rm without the glob at its end; new. */
static char *rules_cache_removed_path(const char *word)
{
    char *path = xstrdup(word);
    size_t n = strlen(path);

    while (n > 1 && (path[n - 1] == '*' || path[n - 1] == '/'))
        path[--n] = 0;
    return path;
}

static void rules_cache_check_rm(const struct lint_walk *w, size_t i)
{
    const struct shell_command *c = &w->script->commands[i];
    size_t paths = 0;
    struct lint_finding *f = NULL;
    const struct shell_word *word;

    for (size_t k = 0; (word = shell_arg(c, k)); k++) {
        _cleanup_free_ char *path = rules_cache_removed_path(word->text);

        if (*word->text == '-')
            continue;
        paths++;
        for (size_t n = 0; n < w->in->n_mounts; n++) {
            const struct dockerfile_mount *m = &w->in->mounts[n];
            _cleanup_free_ char *target = rules_cache_target_of(w, m);

            if (!rules_cache_is_cache(m) || *path != '/' || !*target ||
                !tool_paths_meet(path, target))
                continue;
            f = lint_find(w, RULE_CACHE_DEFEATED, word->at, word->end,
                          "'rm' removes '%s' from the cache mounted at '%s'", word->text,
                          m->target);
            lint_set_fix(f, "Remove '%s'. The cache mount is not part of the image.", word->text);
            if (paths == 1 && !shell_arg(c, k + 1))
                rules_cache_remove_command(w, f, i);
            else
                rules_cache_remove_word(f, c, word);
            break;
        }
    }
}

static void rules_cache_check_defeated(const struct lint_walk *w, size_t i)
{
    const struct shell_command *c = &w->script->commands[i];
    bool installs;
    const struct lint_tool *t = tool_of(c, &installs);
    const struct dockerfile_mount *m = t ? rules_cache_mount_for(w, t, c) : NULL;

    if (STREQ(shell_name(c), "rm") && rules_cache_has_cache_mount(w))
        rules_cache_check_rm(w, i);
    if (!m)
        return;
    if (tool_cleans(t, c)) {
        rules_cache_check_clean(w, i, t, m);
        return;
    }
    rules_cache_check_off_flags(w, t, c, m);
    rules_cache_check_off_variable(w, t, c, m);
    rules_cache_check_other_folder(w, t, c, m);
}

/* ---- cache-docker-clean ---- */

/* Whether this stage removes the hook, up to and including this instruction. */
static bool rules_cache_hook_is_gone(const struct lint_walk *w)
{
    const struct dockerfile_stage *st = &w->df->stages[w->stage];

    for (size_t i = st->first; i < st->last; i++) {
        const struct dockerfile_instruction *in = &w->df->instructions[i];

        if (in->kind == DOCKERFILE_RUN &&
            memmem(w->df->text + in->at, in->end - in->at, "docker-clean", 12))
            return true;
        if (in == w->in)
            break;
    }
    return false;
}

static void rules_cache_check_docker_clean(const struct lint_walk *w)
{
    for (size_t i = 0; i < w->in->n_mounts; i++) {
        const struct dockerfile_mount *m = &w->in->mounts[i];
        _cleanup_free_ char *target = rules_cache_target_of(w, m);
        struct lint_finding *f;

        if (!rules_cache_is_cache(m) || !tool_paths_meet(target, "/var/cache/apt") ||
            rules_cache_hook_is_gone(w))
            continue;
        f = lint_find(
            w, RULE_CACHE_DOCKER_CLEAN, m->at, m->end,
            "the docker-clean hook of Debian and Ubuntu images empties '%s' after every apt-get",
            m->target);
        lint_set_fix(f, "Begin the command with 'rm -f /etc/apt/apt.conf.d/docker-clean;'.");
        if (!w->in->json && !w->in->n_heredocs)
            lint_set_edit(f, w->in->words[0].at, w->in->words[0].at,
                          xstrdup("rm -f /etc/apt/apt.conf.d/docker-clean; "));
        return;
    }
}

/* ---- cache-owner ---- */

static void rules_cache_check_owner(const struct lint_walk *w)
{
    const char *user = w->at->user;
    size_t n = user ? strcspn(user, ":") : 0;
    bool number = n && strspn(user, "0123456789") == n;

    if (!n || (n == 4 && !strncmp(user, "root", 4)) || (n == 1 && *user == '0'))
        return;
    for (size_t i = 0; i < w->in->n_mounts; i++) {
        const struct dockerfile_mount *m = &w->in->mounts[i];
        bool given = m->uid && !STREQ(m->uid, "0");

        if (!rules_cache_is_cache(m) || (m->mode && strstr(m->mode, "777")))
            continue;
        if (given && (!number || (strlen(m->uid) == n && !strncmp(m->uid, user, n))))
            continue;
        lint_set_fix(lint_find(w, RULE_CACHE_OWNER, m->at, m->end,
                               "the cache at '%s' belongs to uid %s, but the RUN runs as '%.*s'",
                               m->target ? m->target : "", m->uid ? m->uid : "0", (int)n, user),
                     "Add uid=%s to the mount. Tools ignore a cache that belongs to another user.",
                     number ? user : "UID (the user's number)");
    }
}

/* ---- cache-unused, no-cache ---- */

static void rules_cache_check_unused(const struct lint_walk *w, const struct lint_tool *t,
                                     const struct shell_command *c)
{
    for (size_t i = 0; i < w->in->n_mounts; i++) {
        const struct dockerfile_mount *m = &w->in->mounts[i];
        _cleanup_free_ char *target = rules_cache_target_of(w, m), *folder = tool_folder(t, w->at);

        if (!rules_cache_is_cache(m) || !*target || !strstr(target, t->name) ||
            tool_uses(t, w->at, c, target))
            continue;
        lint_set_fix(lint_find(w, RULE_CACHE_UNUSED, m->at, m->end,
                               "%s does not use the cache mounted at '%s': it caches in '%s'",
                               t->name, m->target, folder),
                     "Mount the cache at '%s'%s%.*s%s.", folder, t->variable ? ", or set " : "",
                     t->variable ? (int)strcspn(t->variable, " ") : 0,
                     t->variable ? t->variable : "", t->variable ? " to the target" : "");
    }
}

static void rules_cache_check_missing(const struct lint_walk *w, const struct lint_tool *t,
                                      const struct shell_command *c)
{
    _cleanup_free_ char *folder = tool_folder(t, w->at);

    if (rules_cache_mount_for(w, t, c))
        return;
    lint_set_fix(lint_find(w, RULE_NO_CACHE, c->words[c->first].at, c->words[c->first].end,
                           "%s downloads everything again each time this layer is built", t->name),
                 "Add --mount=type=cache,target=%s to the RUN.", folder);
}

static bool rules_cache_is_repeated(const struct lint_tool *const *seen, size_t n,
                                    const struct lint_tool *t)
{
    for (size_t i = 0; i < n; i++)
        if (seen[i] == t)
            return true;
    return false;
}

void rules_cache(const struct lint_walk *w)
{
    const struct lint_tool *seen[16];
    size_t n_seen = 0;

    if (!w->script)
        return;
    rules_cache_check_owner(w);
    for (size_t i = 0; i < w->script->n; i++) {
        const struct shell_command *c = &w->script->commands[i];
        bool installs;
        const struct lint_tool *t = tool_of(c, &installs);

        rules_cache_check_defeated(w, i);
        if (!t || !installs || rules_cache_is_repeated(seen, n_seen, t) ||
            n_seen == ARRAY_SIZE(seen))
            continue;
        seen[n_seen++] = t;
        rules_cache_check_unused(w, t, c);
        rules_cache_check_missing(w, t, c);
        if (STREQ(t->name, "apt"))
            rules_cache_check_docker_clean(w);
    }
}

/*
 * What RUN's shell does not say: a download that is run unread, a pipe whose failure is lost.
 */
#include <string.h>

#include "image/lint/rules.h"
#include "image/lint/tool.h"

static bool rules_shell_is_shell(const struct shell_command *c)
{
    return tool_has_word("sh bash dash ash zsh ksh python python3 node perl ruby", shell_name(c));
}

static bool rules_shell_is_download(const struct shell_command *c)
{
    return tool_has_word("curl wget", shell_name(c));
}

/* curl … | sh, also with something between the two. */
static void rules_shell_check_download(const struct lint_walk *w, size_t i)
{
    const struct shell_command *c = &w->script->commands[i], *from = c;

    if (!rules_shell_is_shell(c) || !c->from_pipe)
        return;
    while (from > w->script->commands && from->from_pipe)
        from--;
    if (!rules_shell_is_download(from))
        return;
    lint_set_fix(
        lint_find(w, RULE_PIPE_TO_SHELL, from->words[from->first].at, c->words[c->n - 1].end,
                  "%s runs a download that was not verified, even if the download is incomplete",
                  shell_name(c)),
        "Download to a file, verify its checksum, then run it; or install a package.");
}

static bool rules_shell_has_word(const struct shell_command *c, const char *word)
{
    for (size_t i = 0; i < c->n; i++)
        if (STREQ(c->words[i].text, word))
            return true;
    return false;
}

static bool rules_shell_fails_in_pipes(const struct lint_walk *w)
{
    for (size_t i = 0; w->at->shell && w->at->shell[i]; i++)
        if (strstr(w->at->shell[i], "pipefail"))
            return true;
    for (size_t i = 0; i < w->script->n; i++)
        if (rules_shell_has_word(&w->script->commands[i], "pipefail"))
            return true;
    return false;
}

/* Commands that cannot fail in a way that matters before a pipe. */
static bool rules_shell_is_harmless(const struct shell_command *c)
{
    return tool_has_word("echo printf yes true :", shell_name(c));
}

static void rules_shell_check_pipe(const struct lint_walk *w)
{
    for (size_t i = 0; i < w->script->n; i++) {
        const struct shell_command *c = &w->script->commands[i];

        if (!c->to_pipe || c->first == c->n || rules_shell_is_harmless(c))
            continue;
        lint_set_fix(
            lint_find(
                w, RULE_NO_PIPEFAIL, c->words[c->first].at, c->words[c->n - 1].end,
                "a failure of '%s' is ignored: the shell checks only the last command of a pipe",
                shell_name(c)),
            "Add SHELL [\"/bin/bash\", \"-o\", \"pipefail\", \"-c\"] before this RUN.");
        return;
    }
}

void rules_shell(const struct lint_walk *w)
{
    if (!w->script || w->in->json)
        return;
    for (size_t i = 0; i < w->script->n; i++)
        rules_shell_check_download(w, i);
    if (!rules_shell_fails_in_pipes(w))
        rules_shell_check_pipe(w);
}

/*
 * Risks in the shell commands of RUN: a download that runs unverified, a pipe whose failure is
 * ignored.
 */
#include <string.h>

#include "image/lint/rules.h"
#include "image/lint/tool.h"

/* curl … | sh, also with other commands between the two. */
static void rules_shell_check_download(const struct lint_walk *w, size_t i)
{
    static const char shells[] = "sh bash dash ash zsh ksh python python3 node perl ruby";
    const struct shell_command *c = &w->script->commands[i], *from = c;

    if (!tool_has_word(shells, shell_name(c)) || !c->from_pipe)
        return;
    while (from > w->script->commands && from->from_pipe)
        from--;
    if (!tool_has_word("curl wget", shell_name(from)))
        return;
    lint_set_fix(
        lint_find(w, RULE_PIPE_TO_SHELL, from->words[from->first].at, c->words[c->n - 1].end,
                  "%s runs a download that was not verified, even if the download is incomplete",
                  shell_name(c)),
        "Download to a file, verify its checksum, then run it; or install a package.");
}

static bool rules_shell_fails_in_pipes(const struct lint_walk *w)
{
    for (size_t i = 0; w->at->shell && w->at->shell[i]; i++)
        if (strstr(w->at->shell[i], "pipefail"))
            return true;
    for (size_t i = 0; i < w->script->n; i++)
        for (size_t k = 0; k < w->script->commands[i].n; k++)
            if (STREQ(w->script->commands[i].words[k].text, "pipefail"))
                return true;
    return false;
}

static void rules_shell_check_pipe(const struct lint_walk *w)
{
    static const char harmless[] = "echo printf yes true :"; /* their failure does not matter */

    for (size_t i = 0; i < w->script->n; i++) {
        const struct shell_command *c = &w->script->commands[i];

        if (!c->to_pipe || c->first == c->n || tool_has_word(harmless, shell_name(c)))
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

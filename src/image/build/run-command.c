#include "image/build/run-command.h"

#include <string.h>

#include "lib/base/buf.h"
#include "lib/base/command-size.h"
#include "lib/base/strv.h"

enum { VARIABLES_MAX = 256 << 20 };

char **run_command_shell(const struct dockerfile_config *c)
{
    static char *const standard[] = {(char *)"/bin/sh", (char *)"-c", NULL};

    return strv_copy(c->shell ? c->shell : standard);
}

char *run_command_heredoc(const struct dockerfile_heredoc *h)
{
    _cleanup_buf_ struct buf b = BUF_INIT(DOCKERFILE_SIZE_MAX);
    bool begins = h->chomp;

    for (const char *p = h->content; *p; p++) {
        if (begins && *p == '\t')
            continue;
        begins = h->chomp && *p == '\n';
        (void)!buf_append_c(&b, *p);
    }
    return buf_steal(&b);
}

char *run_command_text(const struct dockerfile_instruction *in)
{
    _cleanup_buf_ struct buf b = BUF_INIT(DOCKERFILE_SIZE_MAX * 2);
    int r = buf_append_str(&b, in->words[0].text);

    for (size_t i = 0; r >= 0 && i < in->n_heredocs; i++)
        r = buf_appendf(&b, "\n%s%s", in->heredocs[i].content, in->heredocs[i].name);
    return buf_steal(&b);
}

int run_command_check(char *const *argv, char *const *env, struct err *err)
{
    char *const *over = command_oversized(argv);
    size_t size = command_size(argv) + command_size(env);

    if (!over && size <= COMMAND_MAX)
        return 0;
    if (over)
        err_set(err, ERR_LIMIT,
                "RUN: the command is too long (%zu bytes in one argument, Linux takes at most %d)",
                strlen(*over), COMMAND_STRING_MAX - 1);
    else
        err_set(err, ERR_LIMIT,
                "RUN: the command and its variables are too large (%zu bytes with a NUL and a "
                "pointer for each, Linux takes at most %d)",
                size, COMMAND_MAX);
    return err_hint(err, "Write a script with COPY, or begin a heredoc with '#!/bin/sh': both are "
                         "run as a file.");
}

int run_command_count(size_t *total, char *const *env, struct err *err)
{
    *total += command_size(env);
    if (*total <= VARIABLES_MAX)
        return 0;
    return err_set(err, ERR_LIMIT,
                   "the variables are too large (the limit is %d MiB for all RUN instructions "
                   "together)",
                   VARIABLES_MAX >> 20);
}

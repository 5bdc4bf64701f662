/*
 * Package managers: how each is told to install, where it keeps what it has downloaded, and how it
 * is told not to. One table, for all rules.
 */
#pragma once

#include <stdbool.h>

#include "image/dockerfile/config.h"
#include "image/lint/shell.h"

struct tool {
    const char *name;
    const char *programs;     /* words separated by blanks */
    const char *installs;     /* subcommands that download; "" stands for none at all (yarn) */
    const char *folders;      /* where it caches; ~ is the user's home */
    const char *variable;     /* says another folder; or NULL */
    const char *option;       /* likewise, on the command line; or NULL */
    const char *off;          /* options that switch the cache off */
    const char *off_variable; /* likewise, or NULL */
    const char *clean;        /* subcommands that empty it, separated by '|' */
};

/* The tool that a command is, and whether it installs something; NULL when it is none. */
const struct tool *tool_of(const struct shell_command *c, bool *ret_installs);
/* The i-th argument behind the program, where `python -m pip` and `uv pip` are programs. */
const struct shell_word *tool_arg(const struct shell_command *c, size_t i);
/* Whether the command empties the tool's cache. */
bool tool_cleans(const struct tool *t, const struct shell_command *c);
/* Whether a mount at `target` holds, or is part of, the tool's cache under this configuration. */
bool tool_uses(const struct tool *t, const struct config *at, const struct shell_command *c,
               const char *target);
/* The first of its folders, ~ replaced; owned by the caller. */
char *tool_folder(const struct tool *t, const struct config *at);
bool tool_has_word(const char *words, const char *word); /* in a list separated by blanks */
/* One path is the other or lies in it. */
bool tool_paths_meet(const char *a, const char *b);

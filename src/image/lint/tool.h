/*
 * Package managers: their install commands, the folders of their caches, and the options that
 * switch a cache off. One table for all rules.
 */
#pragma once

#include <stdbool.h>

#include "image/dockerfile/config.h"
#include "image/lint/shell.h"

struct lint_tool {
    const char *name;
    const char *programs;     /* words separated by blanks */
    const char *installs;     /* subcommands that download */
    const char *folders;      /* its cache folders; ~ is the user's home */
    const char *variable;     /* variable with another cache folder, or NULL */
    const char *option;       /* option with another cache folder, or NULL */
    const char *off;          /* options that switch the cache off */
    const char *off_variable; /* variable that switches it off, or NULL */
    const char *clean;        /* subcommands that empty the cache, separated by '|' */
};

/* The tool of a command, and whether the command installs packages; NULL: not a known tool. */
const struct lint_tool *tool_of(const struct shell_command *c, bool *ret_installs);
/* The i-th argument after the program; `python -m pip` counts as the program. */
const struct shell_word *tool_arg(const struct shell_command *c, size_t i);
/* Whether the command empties the tool's cache. */
bool tool_cleans(const struct lint_tool *t, const struct shell_command *c);
/* Whether a mount at `target` contains the tool's cache, or is a part of that cache. */
bool tool_uses(const struct lint_tool *t, const struct dockerfile_config *at,
               const struct shell_command *c, const char *target);
/* The first cache folder, with ~ replaced; new. */
char *tool_folder(const struct lint_tool *t, const struct dockerfile_config *at);
bool tool_has_word(const char *words, const char *word); /* in a list separated by blanks */
/* Whether one path is the other, or is below it. */
bool tool_paths_meet(const char *a, const char *b);

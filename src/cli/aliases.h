/*
 * Commands and options of other tools (Docker, Podman, bubblewrap, virtual machines). Those that
 * mean exactly what one of ours does are taken as ours; for the others an error names our way.
 */
#pragma once

#include <stdbool.h>

#include "cli/cli.h"

/* Our command line for this word, e.g. "image ls" for "images", or NULL. */
const char *alias_command(const char *word);
/* What to do instead of a command that we do not have; or NULL. */
const char *alias_hint(const char *word);
/* Our word for one that the user typed: known from other tools, or the most similar; or NULL. */
const char *alias_nearest(const char *word, const char *const *names, size_t n);

struct alias_option {
    const char *commands; /* with a space around each */
    const char *name;     /* "--rm", or "-p" */
    const char *ours;     /* name of our option that it stands for; "": it has no effect; or NULL */
    const char *problem;  /* without `ours`: what is wrong, and ... */
    const char *hint;     /* ... what to do */
};

/* The row for an option that `cmd` does not have, or NULL. word: with its dashes. */
const struct alias_option *alias_option(const struct cli_command *cmd, const char *word,
                                        size_t len);

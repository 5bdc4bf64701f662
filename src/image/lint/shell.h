/*
 * A shell script as a linter sees it: simple commands in a row, with their words, quotes removed,
 * and the place of each word. No expansion and no meaning: `if`, `for` and subshells only separate
 * commands.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "image/dockerfile/dockerfile.h"

enum { SHELL_COMMANDS_MAX = 10000 };

struct shell_word {
    char *text;     /* owned */
    size_t at, end; /* in the source */
};

struct shell_command {
    struct shell_word *words; /* owned; assignments and wrappers (sudo, env, xargs …) included */
    size_t n;
    size_t first;   /* the program's name: behind assignments and wrappers; n when there is none */
    bool from_pipe; /* reads what the command before it writes */
    bool to_pipe;
    bool chained; /* with && or ; to the one before, so that it can be taken out */
};

struct shell_script {
    struct shell_command *commands; /* owned */
    size_t n;
};

/* The commands of a RUN: its command line, its heredocs where they are scripts, its exec form. */
void shell_read(const struct dockerfile_instruction *run, struct shell_script *ret);
void shell_script_done(struct shell_script *s);

/* The program's name without its folder; "" when there is none. */
const char *shell_name(const struct shell_command *c);
/* The i-th argument behind the name, or NULL. */
const struct shell_word *shell_arg(const struct shell_command *c, size_t i);
/* The argument that is this flag, as --x or --x=…; NULL when it is absent. */
const struct shell_word *shell_flag(const struct shell_command *c, const char *flag);
/* An assignment before the name (K=V): its value. */
const char *shell_assigned(const struct shell_command *c, const char *name,
                           const struct shell_word **ret_word);

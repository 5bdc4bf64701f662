/*
 * Splits a shell script into simple commands, with their words (quotes removed) and the position of
 * each word. It expands nothing and interprets nothing: `if`, `for` and subshells only separate
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
    size_t first;   /* index of the program's name, after assignments and wrappers; n: no program */
    bool from_pipe; /* reads the output of the command before it */
    bool to_pipe;
    bool chained; /* follows && or ;, so that it can be removed */
};

struct shell_script {
    struct shell_command *commands; /* owned */
    size_t n;
};

/* Reads the commands of a RUN: its command line, heredocs that are scripts, or its exec form. */
void shell_read(const struct dockerfile_instruction *run, struct shell_script *ret);
void shell_script_done(struct shell_script *s);

/* The program's name without its folder; "": no program. */
const char *shell_name(const struct shell_command *c);
/* The i-th argument after the name, or NULL. */
const struct shell_word *shell_arg(const struct shell_command *c, size_t i);
/* The argument with this flag, as --x or --x=…; NULL: absent. */
const struct shell_word *shell_flag(const struct shell_command *c, const char *flag);
/* The value of an assignment before the name (K=V), or NULL. */
const char *shell_assigned(const struct shell_command *c, const char *name,
                           const struct shell_word **ret_word);

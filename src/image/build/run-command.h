/*
 * The command of a RUN: its text as words, and whether Linux would run it.
 */
#pragma once

#include "image/dockerfile/config.h"

/* The words before the text of a RUN in shell form; new. */
char **run_command_shell(const struct dockerfile_config *c);
/* The text of a heredoc, without the tabs that `<<-` removes; new. */
char *run_command_heredoc(const struct dockerfile_heredoc *h);
/* A command followed by its heredocs, for the shell to parse; new. */
char *run_command_text(const struct dockerfile_instruction *in);

/* What Linux would refuse when the step runs is refused before anything is built. */
int run_command_check(char *const *argv, char *const *env, struct err *err);
/* Each RUN has a copy of the variables: -ERR_LIMIT if all copies together are too large. */
int run_command_count(size_t *total, char *const *env, struct err *err);

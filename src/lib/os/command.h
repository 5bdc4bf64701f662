/*
 * The last steps before execve(). The functions that run between fork and execve do not allocate
 * memory, except for a script without "#!".
 */
#pragma once

#include "lib/base/err.h"

/* Resets ignored and blocked signals: the command must not inherit those of the supervisor. */
void command_reset_signals(void);

/* Runs argv[0], which is looked up in the PATH of `env` when it has no slash. A script without "#!"
 * is run by the shell. Returns only on failure: 0 for "not found", else the errno. */
int command_exec(char **argv, char **env);

/* Fills *err for the result of command_exec(), and returns the negative code. */
int command_explain(const char *name, int errnum, struct err *err);

/*
 * The last steps before execve(). These functions run between fork and execve, so they do not
 * allocate memory, except for a script without "#!".
 */
#pragma once

/* Resets ignored and blocked signals: the command must not inherit those of the supervisor. */
void command_reset_signals(void);

/* Runs argv[0], which is looked up in the PATH of `env` when it has no slash. A script without "#!"
 * is run by the shell. Returns only on failure: 0 for "not found", else the errno. */
int command_exec(char **argv, char **env);

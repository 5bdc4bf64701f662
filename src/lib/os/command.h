/*
 * The last steps of a process that becomes a command. Called between fork and execve; nothing here
 * allocates but for a script without "#!".
 */
#pragma once

/* What the supervisor ignores or blocks for itself must not be inherited by the command. */
void command_reset_signals(void);

/* Looks argv[0] up in `env`'s PATH when it holds no slash, and runs it. Returns only on failure:
 * 0 "not there", else the errno of what stands in the way. A script without "#!" is the shell's. */
int command_exec(char **argv, char **env);

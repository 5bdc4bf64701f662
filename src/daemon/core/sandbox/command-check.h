/*
 * Checks of a command's size, before anything is made or stored. The bounds are those of execve(2)
 * on Linux (lib/base/command-size.h). The daemon refuses what cannot work. The kernel decides about
 * the last kibibytes, because only the supervisor knows the program's path and the variables of the
 * image: its refusal is a failed start.
 */
#pragma once

#include "daemon/engine/sandbox-spec.h"
#include "lib/base/err.h"

/* Every argument; the error names its index. */
int command_check_argv(char *const *argv, struct err *err);
/* One NAME=VALUE; the error names the variable. */
int command_check_variable(const char *pair, struct err *err);
/* The variables of a sandbox or command alone. */
int command_check_env(char *const *env, struct err *err);
/* All that a command in this sandbox gets. argv and env may be NULL: what any command gets. */
int command_check_total(const struct sandbox_spec *spec, char *const *argv, char *const *env,
                        struct err *err);

/*
 * How large a command may be: the bounds that execve(2) has on Linux, in one place for every
 * program and protocol that carries a command or an environment.
 */
#pragma once

#include <stddef.h>

enum {
    /* One argument, or one NAME=VALUE, with its NUL: MAX_ARG_STRLEN of <linux/binfmts.h>. */
    COMMAND_STRING_MAX = 128 << 10,
    /* All of them together, each with its NUL and its pointer: a quarter of the stack limit, which
     * is 8 MiB unless somebody has changed it (bprm_stack_limits() in the kernel's fs/exec.c). */
    COMMAND_MAX = 2 << 20,
    COMMAND_STRING_COST = 1 + sizeof(char *), /* what a string takes besides its bytes */
    COMMAND_STRINGS_MAX = COMMAND_MAX / COMMAND_STRING_COST,
};

#define COMMAND_SIZE_HINT "Pass large data in a file or on the standard input."

/* What an array of strings takes of COMMAND_MAX. */
size_t command_size(char *const *v);
/* The first string that is over COMMAND_STRING_MAX, or NULL. */
char *const *command_oversized(char *const *v);

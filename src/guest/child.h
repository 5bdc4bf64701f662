/*
 * Starts the command's process, a fork of the guest. A pipe that execve closes reports whether that
 * worked.
 */
#pragma once

#include <sys/types.h>

#include "proto/guest.h"

struct guest_child {
    pid_t pid;
    int status;   /* ends when the command runs, or holds the error: child_status() */
    int in;       /* write end of its stdin; with a terminal the master; -1: /dev/null */
    int out, err; /* read ends; with a terminal `out` is the master and `err` -1 */
};

#define CHILD_INIT                                                                                 \
    {                                                                                              \
        .pid = -1, .status = -1, .in = -1, .out = -1, .err = -1                                    \
    }

/* The caller owns all descriptors; they are non-blocking. `env` is the command's environment. */
int child_start(const struct guest_spec *spec, char **env, struct guest_child *ret,
                struct err *err);

/* Once `status` is readable: 1 if the command runs, 0 if that is not known yet, or the error. */
int child_status(const struct guest_child *c, const struct guest_spec *spec, struct err *err);

/* The environment that the engine gave to the guest, plus the spec's. Owned by the caller. */
char **child_env(const struct guest_spec *spec, const char *secrets /* their folder, or NULL */);

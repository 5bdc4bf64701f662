/*
 * The command's process: a fork of the guest that becomes it. Whether that worked comes through a
 * pipe that execve closes.
 */
#pragma once

#include <sys/types.h>

#include "proto/guest.h"

struct child {
    pid_t pid;
    int status;   /* ends when the command runs, or holds why not: child_status() */
    int in;       /* write end of its stdin; with a terminal the master; -1: /dev/null */
    int out, err; /* read ends; with a terminal `out` is the master and `err` -1 */
};

#define CHILD_INIT                                                                                 \
    {                                                                                              \
        .pid = -1, .status = -1, .in = -1, .out = -1, .err = -1                                    \
    }

/* All descriptors are the caller's, non-blocking. `env` is what the command gets. */
int child_start(const struct guest_spec *spec, char **env, struct child *ret, struct err *err);

/* Once `status` is readable: 1 it runs, 0 not known yet, or the error. */
int child_status(const struct child *c, const struct guest_spec *spec, struct err *err);

/* What the engine gave to the guest, with the spec's on top. Owned by the caller. */
char **child_env(const struct guest_spec *spec, const char *secrets /* their folder, or NULL */);

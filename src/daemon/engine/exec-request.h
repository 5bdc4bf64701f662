/*
 * A command to run in a sandbox, as core asks for it. exec-message.h sends it. It may hold secrets:
 * exec_request_wipe() overwrites them once it was sent. A plain value, any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { EXEC_ID_LEN = 16 };

struct exec_secret {
    char *name, *value;
    size_t len;
    /* Only for steps of a build: the path and the owner of its file (proto/handover.h). */
    char *target;
    bool has_owner, has_mode;
    uint32_t uid, gid, mode;
};

/* Strings are owned: exec_request_done(). */
struct exec_request {
    char id[EXEC_ID_LEN + 1]; /* "": core makes one */
    char **argv, **env;
    char *cwd, *user; /* NULL: the sandbox's */
    bool want_stdin, tty, attach;
    bool merged; /* stderr is stdout */
    uint16_t rows, cols;
    uint64_t timeout, idle_timeout; /* usec, 0: none */
    char *input;                    /* the supervisor writes it to the stdin; NULL: nothing */
    size_t input_len;
    struct exec_secret *secrets;
    size_t n_secrets;
    /* Only core reads these: the exec is an agent's turn, and may run beside others
     * (daemon/core/session/session.h). */
    bool session, concurrent;
    bool store_first; /* its row is stored before it is sent, and `id` is given */
};

/* A new deep copy. */
struct exec_request *exec_request_copy(const struct exec_request *src);
/* Overwrites and releases the environment, the input and the secrets. */
void exec_request_wipe(struct exec_request *r);
void exec_request_done(struct exec_request *r); /* NULL is fine */

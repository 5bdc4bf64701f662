/*
 * The handover: what the daemon gives a supervisor beside the message that starts a command. It is
 * a sealed memfd with fields of supervisor.h, so that nothing is missing if the daemon dies.
 *
 * With EXEC_FED it has the input and the secrets, which are never written to disk: INPUT at most
 * once, one SECRET per secret, and SECRET_PLACE after a secret that has a target of its own. With
 * EXEC_LARGE it also has the command, whose size only Linux limits (lib/base/command-size.h): ARG
 * and ENV, each repeated.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum {
    HANDOVER_INPUT_MAX = 16 << 20,
    HANDOVER_SECRETS_MAX = 32,
    HANDOVER_SECRETS_SIZE = 64 << 10, /* names and values together */
};

/* The variable with the path of the secrets' folder, for commands with secrets. */
#define HANDOVER_SECRETS_ENV "RIPCORD_SECRETS"

struct handover_secret {
    const char *name; /* valid for parse_secret_name() */
    const char *value;
    size_t len;
    const char *target;       /* absolute path of its file; NULL: its name in the secrets' folder */
    bool has_owner, has_mode; /* false: the command's user, and mode 0400 */
    uint32_t uid, gid, mode;
};

/* ---- the daemon's side ---- */

struct handover_parts {
    const void *input; /* NULL: the handover does not provide stdin */
    size_t input_len;
    const struct handover_secret *secrets;
    size_t n_secrets;
    char *const *argv, *const *env; /* only for EXEC_LARGE */
};

/* *ret is the memfd. -ERR_LIMIT if a part is too large. */
int handover_make(const struct handover_parts *p, int *ret, struct err *err);

/* ---- the supervisor's side ---- */

struct handover {
    void *map; /* owned; NULL: the handover is empty */
    size_t size;
    const char *input; /* borrowed from the map, as are the secrets and strings; NULL: no input */
    size_t input_len;
    struct handover_secret secrets[HANDOVER_SECRETS_MAX];
    size_t n_secrets;
    /* Of EXEC_LARGE. The strings cannot be written to. Else both are NULL. */
    char **argv, **env;
    size_t n_argv, n_env;
};

/* Checks the whole handover. The caller keeps the descriptor. */
int handover_read(int fd, struct handover *ret, struct err *err);
void handover_done(struct handover *h);

/*
 * The handover: the input and the secrets of a command, which are never written to disk. The daemon
 * sends it to the supervisor as a sealed memfd with EXEC_FED, so that the command gets everything
 * even if the daemon dies. The memfd holds fields of supervisor.h: INPUT at most once, one SECRET
 * per secret, and SECRET_PLACE after a secret that has a target of its own.
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

/* input NULL: the handover does not provide stdin. *ret is the memfd. */
int handover_make(const void *input, size_t input_len, const struct handover_secret *secrets,
                  size_t n_secrets, int *ret, struct err *err);

/* ---- the supervisor's side ---- */

struct handover {
    void *map; /* owned; NULL: the handover is empty */
    size_t size;
    const char *input; /* borrowed from the map, as are the secrets; NULL: no input */
    size_t input_len;
    struct handover_secret secrets[HANDOVER_SECRETS_MAX];
    size_t n_secrets;
};

/* Checks the whole handover. The caller keeps the descriptor. */
int handover_read(int fd, struct handover *ret, struct err *err);
void handover_done(struct handover *h);

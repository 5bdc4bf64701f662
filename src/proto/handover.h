/*
 * What goes to a command beside its words and is never written down: the bytes for its stdin and
 * its secrets. Daemon and supervisor pass it as a sealed memfd beside EXEC_FED, so that the command
 * gets all of it whatever becomes of the daemon. The memfd holds fields as of supervisor.h: INPUT
 * at most once, SECRET as often as there are secrets, and SECRET_PLACE behind one that is not to be
 * where all are.
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

/* Tells a command that has secrets the folder that holds them. */
#define SHIM_SECRETS_ENV "RIPCORD_SECRETS"

struct handover_secret {
    const char *name; /* as of parse_secret_name() */
    const char *value;
    size_t len;
    const char *target;       /* absolute: the file it is to be; NULL: its name, where all are */
    bool has_owner, has_mode; /* else the user's, and 0400 */
    uint32_t uid, gid, mode;
};

/* ---- the daemon's side ---- */

/* input NULL: the command's stdin is none of ours. *ret is the memfd. */
int handover_make(const void *input, size_t input_len, const struct handover_secret *secrets,
                  size_t n_secrets, int *ret, struct err *err);

/* ---- the supervisor's side ---- */

struct handover {
    void *map; /* owned; NULL: there is nothing */
    size_t size;
    const char *input; /* borrowed from the map, as are the secrets; NULL: none */
    size_t input_len;
    struct handover_secret secrets[HANDOVER_SECRETS_MAX];
    size_t n_secrets;
};

/* Checks all of it. The descriptor stays the caller's. */
int handover_read(int fd, struct handover *ret, struct err *err);
void handover_done(struct handover *h);

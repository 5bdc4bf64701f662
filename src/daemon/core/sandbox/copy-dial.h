/*
 * Files and connections through a sandbox's supervisor: what `cp` and `port` are made of. A sandbox
 * that is stopped is started first. The bytes themselves never come here: a copy streams through
 * the descriptor that the caller gave, a dial yields one. All on the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct manager;
struct sandbox;
struct copy_call;

struct copy_result {
    uint64_t entries, bytes, skipped; /* copy */
    int fd;                           /* dial: connected, owned by the callee; else -1 */
};

/* err NULL: success. Called once, never before the call that registered it has returned. */
typedef void (*copy_done_fn)(void *arg, const struct err *err, const struct copy_result *result);

/* Each returns failure at once for what is wrong with the request itself; done is not called then.
 * Takes tar_fd in any case. */
int manager_copy(struct manager *m, const char *name, const char *path, bool into, int tar_fd,
                 copy_done_fn done, void *arg, struct err *err);
int manager_dial(struct manager *m, const char *name, uint16_t port, copy_done_fn done, void *arg,
                 struct err *err);

/* Somebody talks to the sandbox: it is not idle. Fine with a name that is gone. */
void manager_touch(struct manager *m, const char *name);

/* The supervisor's line was cut without a word: whoever waits on it is told; with `all`, also those
 * who wait for the sandbox to come up. */
void copy_dial_lost(struct sandbox *sb, bool all);

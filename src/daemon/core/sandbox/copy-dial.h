/*
 * File copies, file operations and connections through a sandbox's supervisor. A stopped
 * sandbox is started first, except for a dial that must not wake it. The data does not pass through
 * here: a copy streams through the caller's descriptor, and a dial returns a connected one. All on
 * the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct manager;
struct sup_copy;
struct sandbox;
struct copy_call;

struct copy_result {
    uint64_t entries, bytes, skipped; /* of a copy */
    int fd;                           /* of a dial: connected, owned by the callback; else -1 */
};

/* err NULL: success. Called once, never before the function that registered it has returned. */
typedef void (*copy_done_fn)(void *arg, const struct err *err, const struct copy_result *result);

/* Both return a failure at once when the request itself is wrong; done is not called then.
 * manager_copy() takes tar_fd, also on failure, and copies the strings of `copy`. */
int manager_copy(struct manager *m, const char *name, const struct sup_copy *copy, int tar_fd,
                 copy_done_fn done, void *arg, struct err *err);
/* One operation of proto/files.h over `fd`, which it takes, also on failure. user NULL: the
 * sandbox's. writes: the operation needs space. */
int manager_files(struct manager *m, const char *name, const char *user, bool writes, int fd,
                  copy_done_fn done, void *arg, struct err *err);
/* wake: start the sandbox if it is down; otherwise ERR_CONFLICT. */
int manager_dial(struct manager *m, const char *name, uint16_t port, bool wake, copy_done_fn done,
                 void *arg, struct err *err);

/* Counts as use of the sandbox for its idle_stop. An unknown name is ignored. */
void manager_touch(struct manager *m, const char *name);

/* The supervisor's connection is gone: fails the calls that were sent to it. all: also those
 * that wait for the sandbox to start. */
void copy_dial_lost(struct sandbox *sb, bool all);

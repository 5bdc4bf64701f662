/*
 * Saves the ends of execs together with their shares of the usage totals: both or neither. An exec
 * without a saved end is settled and counted by the next daemon, so each exec is counted once, even
 * if this daemon is killed. Ends that cannot be saved (full disk) are kept and saved later. All on
 * the loop.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

struct exec;
struct loop_timer;
struct manager;
struct sandbox;

struct exec_save {
    struct loop_timer *timer;
    struct exec *ends; /* not saved yet; the newest first */
    unsigned n;
    bool planned; /* the timer runs */
    bool failing; /* the last attempt failed, and the timer tries again */
};

void exec_save_open(struct manager *m);
void exec_save_close(struct manager *m);

/* Counts the end of an exec of sb, and saves it: at once, or with others a moment later if the
 * sandbox is ephemeral, because its end is of no use but for the count. */
void exec_save_end(struct exec *x, const struct sandbox *sb);
/* Saves everything that is not saved yet. */
int exec_save_now(struct manager *m, struct err *err);
/* The same inside the caller's transaction. To be followed by exec_save_written() when the
 * transaction is committed. */
int exec_save_write(struct manager *m, struct err *err);
void exec_save_written(struct manager *m);
/* An exec that has ended and whose end is not saved yet, or NULL. */
struct exec *exec_save_find(struct manager *m, const char *id);

/*
 * Parts of a start that do not depend on the sandbox, made in advance by a thread: a few empty
 * folders, taken by rename (on ext4 a mkdir among many costs 0.2 ms, a rename 0.02 ms), and a few
 * shims that wait for their plan (a spawn with its execve costs 1 ms). When none is left, the
 * caller makes its own.
 *
 * A waiting shim ends when the daemon's end of its socket closes, so a killed daemon leaves no
 * shim. The folders that it leaves in spares/ are removed when the next daemon opens. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <sys/types.h>

#include "lib/base/err.h"

/* SANDBOX: a folder for a sandbox's files, with the folders of its root layer, which the shim would
 * otherwise make, and with a project id for its quota. */
enum prewarmed_kind { PREWARMED_SANDBOX, PREWARMED_EXECS, PREWARMED_RUN, PREWARMED_KINDS };

struct prewarmed;

/* shim (the sealed program) and devnull are borrowed until prewarmed_free(). dirs: one folder for
 * each kind, on the file system where it is needed and used by nobody else; taken. */
struct prewarmed *prewarmed_new(int shim, int devnull, bool quota,
                                const int dirs[static PREWARMED_KINDS]);
void prewarmed_free(struct prewarmed *s); /* NULL is fine */

/* As mkdirat(dirfd, name, 0700): 0, or -errno. */
int prewarmed_folder(struct prewarmed *s, enum prewarmed_kind kind, int dirfd, const char *name);

/* A waiting shim that was given its plan (plan_give()), and the daemon's end of its socket. */
struct prewarmed_shim {
    int control; /* owned by the receiver */
    pid_t pid;   /* the receiver waits for it */
};
int prewarmed_shim(struct prewarmed *s, const int fds[], size_t n_fds, struct prewarmed_shim *ret,
                   struct err *err);

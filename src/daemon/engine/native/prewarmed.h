/*
 * What every start needs and what does not depend on the sandbox, made in advance by a thread: a
 * few empty folders, taken by rename (an ext4 mkdir among many costs 0.2 ms, a rename 0.02), and a
 * few shims that wait for their plan (a spawn with its execve costs 1 ms). When none is left, the
 * taker makes its own.
 *
 * A waiting shim ends when its line does: a daemon that is killed leaves none behind. Folders that
 * it leaves in spares/ go when the next one opens.
 */
#pragma once

#include <sys/types.h>

#include "lib/base/err.h"

/* BOX: a sandbox's files, with the folders of its root layer, which the shim would make. */
enum prewarmed_kind { PREWARMED_SANDBOX, PREWARMED_EXECS, PREWARMED_RUN, PREWARMED_KINDS };

struct prewarmed;

/* shim: the sealed program, with devnull the caller's and open until prewarmed_free(). dirs:
 * folders for us alone, one for each kind, on the file system where it is needed; taken. */
struct prewarmed *prewarmed_new(int shim, int devnull, const int dirs[static PREWARMED_KINDS]);
void prewarmed_free(struct prewarmed *s); /* NULL is fine */

/* As mkdirat(dirfd, name, 0700): 0, or -errno. */
int prewarmed_folder(struct prewarmed *s, enum prewarmed_kind kind, int dirfd, const char *name);

/* A waiting shim that was given its plan (plan_give()), and the daemon's end of its line. */
struct prewarmed_shim {
    int control; /* owned by the receiver */
    pid_t pid;   /* to be waited for by the receiver */
};
int prewarmed_shim(struct prewarmed *s, const int fds[], size_t n_fds, struct prewarmed_shim *ret,
                   struct err *err);

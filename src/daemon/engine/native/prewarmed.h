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
enum spare_kind { SPARE_BOX, SPARE_EXECS, SPARE_RUN, SPARE_KINDS };

struct spares;

/* shim: the sealed program, with devnull the caller's and open until spares_free(). dirs:
 * folders for us alone, one for each kind, on the file system where it is needed; taken. */
struct spares *spares_new(int shim, int devnull, const int dirs[static SPARE_KINDS]);
void spares_free(struct spares *s); /* NULL is fine */

/* As mkdirat(dirfd, name, 0700): 0, or -errno. */
int spares_folder(struct spares *s, enum spare_kind kind, int dirfd, const char *name);

/* A waiting shim that was given its plan (plan_give()), and the daemon's end of its line. */
struct spare_shim {
    int control; /* owned by the receiver */
    pid_t pid;   /* to be waited for by the receiver */
};
int spares_shim(struct spares *s, const int fds[], size_t n_fds, struct spare_shim *ret,
                struct err *err);

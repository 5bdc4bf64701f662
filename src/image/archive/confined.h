/*
 * Children that read what others have made: archives. Each has namespaces of its own (user, mount,
 * pid, network, ipc, uts), one folder as its root or none that it could open anything in, the
 * descriptors it was given and no other, limits on memory, and a short list of system calls. It
 * starts no program and dies with its parent.
 *
 * For single-threaded callers: it is a plain clone().
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "image/oci/digest.h"
#include "lib/base/err.h"
#include "lib/os/submap.h"

enum confined_kind {
    CONFINED_OWN,   /* all that is made belongs to the caller */
    CONFINED_RANGE, /* ids 0 to 65535 are those of the disk: needs a privileged caller */
    CONFINED_SUB,   /* as lib/os/submap.h maps them */
};

/* Whose the files are that a child makes. */
struct confined_ids {
    enum confined_kind kind;
    struct submap sub;
};

enum { CONFINED_FDS_MAX = 4, CONFINED_OUT_MAX = 256 };

struct confined_job {
    /* In the child. root: its folder, or -1. out: CONFINED_OUT_MAX bytes that the parent sees. */
    int (*fn)(void *arg, int root, void *out, struct err *err);
    void *arg;
    /* In the child before any wall stands, in its folder: what it mounts below comes along. May be
     * NULL. */
    int (*prepare)(void *arg, struct err *err);
    int dir;    /* becomes its root; -1: none */
    bool trees; /* it walks trees, with a descriptor for each level */
    int fds[CONFINED_FDS_MAX];
    size_t n_fds;
};

struct confined {
    int pidfd;
    struct confined_word *word; /* shared with the child */
};

#define CONFINED_INIT                                                                              \
    {                                                                                              \
        .pidfd = -1                                                                                \
    }

int confined_start(const struct confined_job *job, const struct confined_ids *ids,
                   struct confined *ret, struct err *err);
/* The same with a pipe to it (`reads`) or from it. *its: where job->arg keeps its end, set here;
 * *ret_fd: ours. */
int confined_start_piped(struct confined_job *job, bool reads, int *its,
                         const struct confined_ids *ids, struct confined *ret, int *ret_fd,
                         struct err *err);
/* Reads all that one gives, counts its digest and hands it on: `put` may be NULL; what it returns
 * ends this, unless that is 0, and is returned. */
typedef int (*confined_put_fn)(void *to, const void *data, size_t len, struct err *err);
int confined_drain(int fd, confined_put_fn put, void *to, char digest[static DIGEST_MAX],
                   struct err *err);
/* Waits for it; its failure is ours. out: what it has left, may be NULL. */
int confined_wait(struct confined *c, void *out, size_t out_len, struct err *err);
/* Ends it when it still runs. Fine with one that never was. */
void confined_done(struct confined *c);

/* Removes dirfd/name with all in it, whoever of these ids it belongs to. */
int confined_remove(const struct confined_ids *ids, int dirfd, const char *name, struct err *err);

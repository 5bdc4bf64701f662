/*
 * Confined children: processes that read untrusted archives. Each child has
 *
 *   - its own namespaces (user, mount, pid, network, ipc, uts)
 *   - one folder as its root, or no folder at all
 *   - the descriptors that it was given, and no others
 *   - limits on memory and open files, and a short list of system calls
 *
 * A child starts no program and dies with its parent. The parent must be single-threaded, because
 * a child is made by clone() without exec.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "image/oci/digest.h"
#include "lib/base/err.h"
#include "lib/os/submap.h"

enum confined_kind {
    CONFINED_OWN,   /* all files belong to the caller */
    CONFINED_RANGE, /* ids 0 to 65535, the same on the disk: needs a privileged caller */
    CONFINED_SUB,   /* mapped by lib/os/submap.h */
};

/* The owners of the files that a child creates. */
struct confined_ids {
    enum confined_kind kind;
    struct submap sub;
};

enum { CONFINED_FDS_MAX = 4, CONFINED_OUT_MAX = 256 };

struct confined_job {
    /* Runs in the child. root: its folder, or -1. out: CONFINED_OUT_MAX bytes for the parent. */
    int (*fn)(void *arg, int root, void *out, struct err *err);
    void *arg;
    /* Runs in the child, in its folder, before the guards: mounts that it makes below the folder
     * stay visible. May be NULL. */
    int (*prepare)(void *arg, struct err *err);
    int dir;    /* becomes the child's root; -1: no folder */
    bool trees; /* the child walks trees, with a descriptor for each level */
    int fds[CONFINED_FDS_MAX];
    size_t n_fds;
};

struct confined {
    int pidfd;
    struct confined_result *result; /* shared with the child */
};

#define CONFINED_INIT                                                                              \
    {                                                                                              \
        .pidfd = -1                                                                                \
    }

int confined_start(const struct confined_job *job, const struct confined_ids *ids,
                   struct confined *ret, struct err *err);
/* The same with a pipe: to the child if it `reads`, else from it. *its is set to the child's end;
 * it is a field of job->arg. *ret_fd is the caller's end. */
int confined_start_piped(struct confined_job *job, bool reads, int *its,
                         const struct confined_ids *ids, struct confined *ret, int *ret_fd,
                         struct err *err);
/* Reads fd to its end, computes the digest and calls `put` for each piece. put may be NULL. A result
 * of put other than 0 ends the loop and is returned. */
typedef int (*confined_put_fn)(void *to, const void *data, size_t len, struct err *err);
int confined_drain(int fd, confined_put_fn put, void *to, char digest[static DIGEST_MAX],
                   struct err *err);
/* Waits for the child and returns its error. out: a copy of the child's `out`; may be NULL. */
int confined_wait(struct confined *c, void *out, size_t out_len, struct err *err);
/* Kills the child if it still runs. Does nothing for CONFINED_INIT. */
void confined_done(struct confined *c);

/* Removes dirfd/name and its contents, also files of the mapped ids. */
int confined_remove(const struct confined_ids *ids, int dirfd, const char *name, struct err *err);

/*
 * COPY, ADD and WORKDIR: copies files from one tree into another, with the semantics of BuildKit.
 * Both trees are untrusted: every path is resolved with its tree as the root, and nothing is
 * written through a link below the destination. Runs in a confined child, starts no process, and
 * needs only the two folders.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "image/build/filter.h"
#include "lib/base/err.h"

enum { COPY_ID_MAX = 65535 }; /* the highest uid and gid in a sandbox */

struct copy_owner {
    bool given; /* false: uid and gid do not count */
    uint32_t uid, gid;
};

/*
 * "name", "name:group", "1000" or "1000:1000"; names are looked up in the /etc/passwd and
 * /etc/group of the tree.
 */
int copy_owner_find(int root, const char *text, struct copy_owner *ret, struct err *err);

struct copy_job {
    int from;                /* root of the sources */
    char *const *sources;    /* paths and patterns */
    struct filter_want want; /* with parents the destination is a folder */
    int to;                  /* root of the destination */
    const char *dest;        /* absolute; with a slash at its end it is a folder */
    struct copy_owner owner; /* of the copies; not given: as the sources have it */
    struct copy_owner way;   /* of new folders above the copies; not given: the caller's */
    int mode;                /* of the copies; -1: as the sources have it */
};

/* Finds all sources before it copies the first: a wrong source changes nothing. */
int copy_files(const struct copy_job *job, struct err *err);
/* Makes a folder and its parents. New folders have mode 0755 and the owner. */
int copy_make_folder(int root, const char *path, const struct copy_owner *owner, int *ret,
                     struct err *err);

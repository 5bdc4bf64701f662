/*
 * COPY, ADD and WORKDIR: files from one tree into another, as BuildKit lays them. Both trees are
 * foreign: every path is looked up with its tree as the root, nothing is written through a link
 * below the destination. Runs in a confined child; starts nothing, and needs nothing but the two
 * folders.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "image/build/filter.h"
#include "lib/base/err.h"

enum { COPY_ID_MAX = 65535 }; /* of users and groups that sandboxes have */

struct copy_owner {
    bool given;
    uint32_t uid, gid;
};

/* "name", "name:group", "1000", "1000:1000": names as the tree's own /etc/passwd and /etc/group
 * have them. */
int copy_owner_find(int root, const char *text, struct copy_owner *ret, struct err *err);

struct copy_job {
    int from;                /* root of the sources */
    char *const *sources;    /* paths and patterns */
    struct filter_want want; /* what of them; with parents the destination is a folder */
    int to;                  /* root of the destination */
    const char *dest;        /* absolute; with a slash at its end it is a folder */
    struct copy_owner owner; /* of all that is copied; not given: as the sources have it */
    struct copy_owner way;   /* of folders that are made on the way; not given: the caller's */
    int mode;                /* of all that is copied; -1: as the sources have it */
};

int copy_files(const struct copy_job *job, struct err *err);
/* A folder with all above it; 0755, and the owner's where they are new. */
int copy_make_folder(int root, const char *path, const struct copy_owner *owner, int *ret,
                     struct err *err);

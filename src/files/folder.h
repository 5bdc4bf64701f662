/*
 * Walking a tree in a stable order: names of a folder sorted by their bytes, each folder followed
 * by what is in it. Memory is bounded: a folder is read in passes, each of which keeps only the
 * next names. No link is followed.
 */
#pragma once

#include "files/job.h"

struct files_node {
    int dirfd;
    const char *name;
    const char *path; /* whole, as the request began it */
    const char *rel;  /* below the top */
    unsigned depth;   /* 1: directly in the top */
    struct stat st;
};

enum files_step { FILES_GO_ON, FILES_SKIP, FILES_STOP };

/* Called for each entry; a folder's contents follow, unless it returns FILES_SKIP. FILES_STOP ends
 * the walk. An error is negative. */
typedef int (*files_visit_fn)(void *arg, const struct files_node *node, struct err *err);

struct files_walk {
    struct files_task *job;
    files_visit_fn visit;
    /* After the contents of a folder. NULL: not called. */
    files_visit_fn leave;
    void *arg;
    unsigned depth_max;  /* folders that are deeper are not entered */
    const char *after;   /* skip up to this path below the top, inclusive; NULL: nothing */
    bool strict;         /* a folder that cannot be read is an error; else it is counted: */
    uint64_t unreadable; /* also folders deeper than FILES_DEEPEST */
};

enum { FILES_DEEPEST = 256 };

/* Ends a page: the totals, and the cursor if the walk has stopped. */
int files_send_page(struct files_task *j, const struct files_walk *w, const char *last, int stopped,
                    uint64_t searched, struct err *err);
/* 0: the end; 1: the visitor or the time has stopped it. */
int files_walk_tree(struct files_walk *w, const char *top, struct err *err);
/* The same from an open folder, which it takes. */
int files_walk_from(struct files_walk *w, int fd, const char *top, struct err *err);

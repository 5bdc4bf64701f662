/*
 * Copies a file or a tree inside the sandbox. The copy is made beside its place and renamed, so it
 * appears whole. Links are copied as links; sockets, FIFOs and devices are left out.
 */
#pragma once

#include "files/job.h"

struct files_copy_totals {
    uint64_t entries, bytes, skipped;
};

int files_copy_tree(struct files_task *j, int from, const char *name, int to, const char *to_name,
                    struct files_copy_totals *totals, struct err *err);
/* Renames by the request's `overwrite`. 1: it is on another file system (EXDEV). */
int files_place(const struct files_task *j, int from, const char *name, int to, const char *to_name,
                struct err *err);
int files_remove_tree(int dirfd, const char *name, const char *shown, struct err *err);

/*
 * `cp` inside: turns a tree of the sandbox into a tar stream and back. Runs in a forked helper that
 * has entered the sandbox's user and mount namespaces with the sandbox user's ids, so that every
 * path resolves inside and every permission is the user's own; it starts no program and needs no
 * other privilege. What comes in is a hostile archive, what is read is a hostile tree.
 */
#pragma once

#include <stdint.h>

#include "base/err.h"

struct copy_stats {
    uint64_t entries;
    uint64_t bytes;
    uint64_t skipped; /* sockets, FIFOs, devices: they do not travel */
};

/* `path` and what lies below it; the entries' names start with its last component ("." for "/").
 * Links are copied as links. */
int copy_out(const char *path, int tar_fd, struct copy_stats *stats, struct err *err);

/*
 * As `cp -r`: where `path` is a folder the archive's top entry lands in it under its own name;
 * where it does not exist (but its parent does) the top entry gets that name. Existing files are
 * replaced atomically. Nothing is written through a symlink below `path`. Set-uid and set-gid bits
 * are dropped; files belong to the caller.
 */
int copy_in(const char *path, int tar_fd, struct copy_stats *stats, struct err *err);

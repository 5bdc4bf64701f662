/*
 * Turns a tree of files into a tar stream and back, for both ends of `cp`. It blocks and starts no
 * program. It runs in the command line tool on the user's own files, and in a helper process that
 * has entered the sandbox, where paths and permissions are those of the sandbox. The archive may be
 * hostile, and so may be the tree, which can change during the copy.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/tar.h"

/* Updated during the copy. */
struct tree_stats {
    uint64_t entries;
    uint64_t bytes;   /* of file contents */
    uint64_t skipped; /* sockets, FIFOs and devices are not copied */
};

/* Writes `path` and everything below it. The names of the entries start with its last component
 * ("." for "/", "." and ".."). Links are copied as links. */
int tree_to_tar(const char *path, tar_write_fn write, void *arg, struct tree_stats *stats,
                struct err *err);

/*
 * Works like `cp -r`. When `path` is a folder, the top entry of the archive goes into it under its
 * own name. When `path` does not exist but its parent does, the top entry gets that name. Existing
 * files are replaced atomically, existing folders keep their mode. Symlinks below `path` are not
 * followed. Set-uid and set-gid bits are dropped; files belong to the caller. An archive without
 * its end mark is an error, which is found after its entries were written.
 */
int tree_from_tar(const char *path, tar_read_fn read, void *arg, struct tree_stats *stats,
                  struct err *err);

/* Like err_sys(), for a file that the user named: ENOENT, EACCES and ENOSPC get their own codes,
 * because they are not faults of the machine. */
int tree_err(struct err *err, int errnum, const char *fmt, ...) _printf_(3, 4);

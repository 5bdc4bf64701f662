/*
 * Turns a tree of files into a tar stream and back: what `cp` does at both ends. Blocking; runs in
 * the command line on the user's own files, and in a helper of the shim that has entered the
 * sandbox, so that every path resolves there and every permission is the sandbox user's. Starts no
 * program. What comes in is a hostile archive, what is read may be a hostile tree that changes
 * meanwhile.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/tar.h"

/* Counts as the work goes on. */
struct tree_stats {
    uint64_t entries;
    uint64_t bytes;   /* of file contents */
    uint64_t skipped; /* sockets, FIFOs, devices: they do not travel */
};

/* `path` and what lies below it; the entries' names start with its last component ("." for "/",
 * "." and ".."). Links are copied as links. */
int tree_to_tar(const char *path, tar_write_fn write, void *arg, struct tree_stats *stats,
                struct err *err);

/*
 * As `cp -r`: where `path` is a folder the archive's top entry lands in it under its own name;
 * where it does not exist (but its parent does) the top entry gets that name. Existing files are
 * replaced atomically, existing folders keep their mode. Nothing is written through a symlink below
 * `path`. Set-uid and set-gid bits are dropped; files belong to the caller. An archive without its
 * end mark is an error, as far as it could be told then.
 */
int tree_from_tar(const char *path, tar_read_fn read, void *arg, struct tree_stats *stats,
                  struct err *err);

/* As err_sys(), for a file that a user named: there ENOENT, EACCES and ENOSPC are not the machine's
 * fault, and get their own codes. */
int tree_err(struct err *err, int errnum, const char *fmt, ...) _printf_(3, 4);

/*
 * Turns a tree of files into a tar stream and back, for both ends of `cp`. It blocks and starts no
 * program. It runs in the command line tool on the user's own files, and in a helper process that
 * has entered the sandbox, where paths and permissions are those of the sandbox. The archive may be
 * hostile, and so may be the tree, which can change during the copy.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

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
 * How files are placed. All zero: each file is written beside its place and renamed, which replaces
 * a file or link of that name; it belongs to the caller and gets the mode of the archive.
 */
struct tree_rules {
    /*
     * As open(2) for writing does: an existing file keeps its inode, with owner, mode, hard links
     * and open readers, and a link is followed. Only for a caller whose root folder is the
     * sandbox's. A link of the archive itself is never followed.
     */
    bool through;
    bool parents;   /* make the missing folders of `path` */
    bool has_owner; /* of each file and link written and each folder made */
    uid_t uid;
    gid_t gid;
    bool has_mode; /* of each file written, at most 0777 */
    mode_t mode;
};

/*
 * Works like `cp -r`. When `path` is a folder, the top entry of the archive goes into it under its
 * own name. When `path` does not exist but its parent does, the top entry gets that name; a `path`
 * that ends with a slash must be a folder. rules NULL: the files are the user's own, and a link in
 * the place of `path` is not followed. Existing folders keep their mode. Folders below `path`
 * that are links are refused. Set-uid and set-gid bits are dropped. An archive without its end mark
 * is an error, which is found after its entries were written. Errors name the whole path.
 */
int tree_from_tar(const char *path, const struct tree_rules *rules, tar_read_fn read, void *arg,
                  struct tree_stats *stats, struct err *err);

/*
 * Opens a file to be written with rules->through, empty, with its owner and mode: creates it with
 * `mode`, or truncates an existing one, whose mode stays. Only regular files; never waits for a
 * FIFO. `shown` is the path for errors.
 */
int tree_file_open(int dirfd, const char *name, const char *shown, const struct tree_rules *rules,
                   mode_t mode, int *ret, struct err *err);

/* What must hold before an existing file is changed. */
struct tree_condition {
    bool exclusive; /* the file must not exist: ERR_CONFLICT with EEXIST */
    /* Called with an existing file, which is open for writing and unchanged, and with -1 if it does
     * not exist. A failure leaves everything as it was. NULL: no check. */
    int (*check)(void *arg, int fd, struct err *err);
    void *arg;
};
/* tree_file_open() under a condition. *ret_created: the file did not exist. */
int tree_file_open_if(int dirfd, const char *name, const char *shown,
                      const struct tree_rules *rules, mode_t mode,
                      const struct tree_condition *condition, int *ret, bool *ret_created,
                      struct err *err);

/* Like err_sys(), for a file that the user named: ENOENT, EACCES and ENOSPC get their own codes,
 * because they are not faults of the machine. */
int tree_err(struct err *err, int errnum, const char *fmt, ...) _printf_(3, 4);

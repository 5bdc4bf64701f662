/*
 * Tar streams, both ways, for `cp` and archives. The reader takes hostile bytes: it knows ustar,
 * pax (x, g) and GNU long names and base-256 numbers, has limits on everything, and refuses what it
 * does not know (sparse files, multi-volume) with an error that names the entry. It never touches
 * the file system: see lib/base/tree.h for that. The writer makes ustar with pax records where
 * ustar is too small.
 *
 * Both are pull/push over caller's functions and block.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

enum {
    TAR_BLOCK = 512,
    TAR_PATH_MAX = 4096,    /* with the NUL */
    TAR_PAX_MAX = 64 << 10, /* one pax header's records */
    TAR_ENTRIES_MAX = 1 << 20,
};

enum tar_type {
    TAR_FILE,
    TAR_DIR,
    TAR_SYMLINK,
    TAR_HARDLINK,
    TAR_OTHER /* device, fifo: callers skip or refuse */
};

/* An extended attribute of an entry: all borrowed. */
struct tar_xattr {
    const char *name;
    const void *value;
    size_t len;
};

struct tar_entry {
    enum tar_type type;
    char path[TAR_PATH_MAX];
    char link[TAR_PATH_MAX]; /* symlink or hard link target */
    mode_t mode;             /* permission bits only, 07777 */
    uint64_t uid, gid;
    uint64_t size; /* bytes of data that follow (TAR_FILE only) */
    int64_t mtime; /* seconds */
    /* For the writer alone: the reader knows of no attributes. */
    const struct tar_xattr *xattrs;
    size_t n_xattrs;
};

/* Up to len bytes; 0 at the end; -errno. */
typedef ssize_t (*tar_read_fn)(void *arg, void *data, size_t len);
/* All of it; 0 or -errno. */
typedef int (*tar_write_fn)(void *arg, const void *data, size_t len);

struct tar_reader {
    tar_read_fn read;
    void *arg;
    uint64_t left; /* data of the current entry still to come */
    unsigned pad;  /* padding behind it */
    uint64_t entries;
    bool ended;
    uint64_t left_out; /* entries that the writer says are missing: tar_put_left_out() */
    bool marked;       /* by its end mark, not only by the end of the stream */
};

void tar_reader_init(struct tar_reader *r, tar_read_fn read, void *arg);
/* 1 and *ret; 0 at the end of the archive; an error. Data of the entry before that was not read is
 * skipped. */
int tar_next(struct tar_reader *r, struct tar_entry *ret, struct err *err);
/* Data of the current entry; 0 at its end. A stream that ends inside it is an error. */
ssize_t tar_read(struct tar_reader *r, void *data, size_t len, struct err *err);

struct tar_writer {
    tar_write_fn write;
    void *arg;
    uint64_t left;
    unsigned pad;
};

void tar_writer_init(struct tar_writer *w, tar_write_fn write, void *arg);
/* entry->size bytes of data must follow through tar_write(). */
int tar_put(struct tar_writer *w, const struct tar_entry *entry, struct err *err);
int tar_write(struct tar_writer *w, const void *data, size_t len, struct err *err);
/* A remark that so many things were left out, for the reader's count; others take it for a comment.
 */
int tar_put_left_out(struct tar_writer *w, uint64_t n, struct err *err);
int tar_finish(struct tar_writer *w, struct err *err); /* the two zero blocks */

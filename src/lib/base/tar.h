/*
 * Reads and writes tar streams, for `cp` and archives. The reader accepts hostile bytes: it knows
 * ustar, pax (x, g), GNU long names and base-256 numbers, and limits everything. It refuses other
 * features (sparse files, multi-volume) with an error that names the entry. It never touches the
 * file system; lib/base/tree.h does. The writer makes ustar, with pax records where ustar is too
 * small.
 *
 * Both block in the read or write function of the caller.
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
    /* Only the writer uses these. */
    const struct tar_xattr *xattrs;
    size_t n_xattrs;
};

/* Up to len bytes; 0 at the end; -errno. */
typedef ssize_t (*tar_read_fn)(void *arg, void *data, size_t len);
/* Writes all bytes; 0 or -errno. */
typedef int (*tar_write_fn)(void *arg, const void *data, size_t len);

struct tar_reader {
    tar_read_fn read;
    void *arg;
    uint64_t left; /* data of the current entry still to come */
    unsigned pad;  /* padding behind it */
    uint64_t entries;
    bool ended;
    uint64_t left_out; /* entries that the writer has left out: tar_put_left_out() */
    bool marked;       /* ended by the end mark, not only by the end of the stream */
};

void tar_reader_init(struct tar_reader *r, tar_read_fn read, void *arg);
/* Returns 1 and *ret, 0 at the end of the archive, or an error. Unread data of the previous entry
 * is skipped. */
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
/* Notes in the archive that n entries were left out. Our reader counts them; other programs see a
 * comment. */
int tar_put_left_out(struct tar_writer *w, uint64_t n, struct err *err);
int tar_finish(struct tar_writer *w, struct err *err); /* the two zero blocks */

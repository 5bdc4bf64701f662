/*
 * Output journals: one append-only byte stream per exec and direction, kept as 16 MiB segment files
 * named `out.00000000`, `err.00000000`, … in the exec's folder. Byte offset N of a stream is byte N
 * % 16 MiB of segment N / 16 MiB, so a reader needs no index.
 *
 * Only the supervisor of the sandbox (shim, relay) writes. Readers are other processes; they learn
 * the length of a stream from messages of the supervisor, or from the file sizes. When a stream
 * exceeds its budget, the writer drops the oldest segments; a reader whose offset is before the
 * first segment sees a gap.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"
#include "lib/journal/times.h"

enum { JOURNAL_SEGMENT_SIZE = 16 << 20 };

enum journal_stream { JOURNAL_STDOUT, JOURNAL_STDERR, JOURNAL_STREAMS };

struct journal_writer {
    int dirfd;        /* borrowed: the exec's folder */
    const char *name; /* "out" or "err" */
    int fd;           /* current segment, -1 before the first byte */
    uint64_t start;   /* first offset still on disk */
    uint64_t end;     /* next offset to write */
    uint64_t budget;  /* 0: unlimited */
    struct times_writer times;
};

void journal_writer_init(struct journal_writer *w, int dirfd, enum journal_stream stream,
                         uint64_t budget);
void journal_writer_done(struct journal_writer *w);
/* Appends all bytes and drops nothing: see journal_writer_trim(). A full disk is ERR_SYSTEM with
 * ENOSPC; bytes written before that count. */
int journal_writer_append(struct journal_writer *w, const void *data, size_t len, struct err *err);
/* Drops the oldest segments until the stream fits its budget; keeps all bytes from `keep` on. */
void journal_writer_trim(struct journal_writer *w, uint64_t keep);

struct journal_reader {
    int dirfd; /* owned */
    enum journal_stream stream;
    int fd;           /* segment last used, or -1 */
    uint64_t segment; /* its number */
};

int journal_reader_open(struct journal_reader *r, int dirfd, const char *exec_dir,
                        enum journal_stream stream, struct err *err);
void journal_reader_done(struct journal_reader *r);
/* The bytes on disk: *start is the lowest offset that is kept, *end the length of the stream. */
int journal_reader_extent(struct journal_reader *r, uint64_t *start, uint64_t *end,
                          struct err *err);
/* When the bytes were written (times.h). The caller frees *ret. */
int journal_reader_times(const struct journal_reader *r, struct times_mark **ret, size_t *ret_n,
                         struct err *err);
/* Reads up to len bytes at offset. 0: not written yet; -ERR_NOT_FOUND: the offset was dropped (a
 * gap). */
ssize_t journal_reader_read(struct journal_reader *r, uint64_t offset, void *data, size_t len,
                            struct err *err);

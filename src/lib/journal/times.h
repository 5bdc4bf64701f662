/*
 * When the bytes of a journal were written: the file `out.times` or `err.times` beside the
 * segments, with a mark (time, offset) at most once in TIMES_GAP_USEC. The bytes from a mark to the
 * next one were written at the time of the mark or up to the gap later. Bytes before the first mark
 * were written within the gap after the writer was made, so that a short command needs no such
 * file.
 *
 * A full file is thinned: every second mark goes, and the gap doubles. The file is therefore never
 * larger than TIMES_MAX marks, and a journal of a day is still known to a few seconds.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"

enum { TIMES_MAX = 16384 };
#define TIMES_GAP_USEC UINT64_C(50000)

struct times_mark {
    uint64_t usec;   /* wall clock */
    uint64_t offset; /* of the first byte that was written then */
};

struct times_writer {
    int fd;        /* -1 before the first mark */
    uint64_t last; /* time of the last mark */
    uint64_t gap;
    size_t n;
};

void times_writer_init(struct times_writer *w);
void times_writer_done(struct times_writer *w);
/* Before bytes are written at `offset`. A failure loses only the mark: the bytes count. stream:
 * "out" or "err". */
void times_writer_note(struct times_writer *w, int dirfd, const char *stream, uint64_t offset);

/* The marks of a stream in ascending order of offsets; without the file none. The caller frees
 * *ret. */
int times_read(int dirfd, const char *stream, struct times_mark **ret, size_t *ret_n,
               struct err *err);

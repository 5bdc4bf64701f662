/*
 * The order of a session's events. The agent's stdout and stderr are two independent journals. The
 * index stores the order in which events of both were first delivered, before they are delivered,
 * so that every later reader gets the same events with the same numbers. It is the file `events` in
 * the exec's folder: a head, then runs of events; a run is the next bytes of one stream. Only the
 * daemon reads and writes it, on the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/journal/journal.h"

struct session_run {
    uint64_t seq;                   /* of its first event */
    uint64_t at[JOURNAL_STREAMS];   /* offsets of both streams before it */
    uint32_t part[JOURNAL_STREAMS]; /* pieces of an unfinished line before it */
    uint64_t to;                    /* offset of its own stream after it */
    uint32_t count;                 /* number of events */
    uint16_t stream;                /* enum journal_stream */
    uint16_t gap;                   /* its only event reports lost bytes */
};

struct session_index {
    int fd; /* -1: not open */
    uint32_t line_max;
};

/* Opens the index in the exec's folder, or creates it. -ERR_NOT_FOUND without the folder. */
int session_index_open(struct session_index *x, const char *dir, struct err *err);
void session_index_done(struct session_index *x);

/* The number of runs. A run that a crash of the machine damaged ends them. */
int session_index_count(const struct session_index *x, uint64_t *ret, struct err *err);
int session_index_get(const struct session_index *x, uint64_t i, struct session_run *ret,
                      struct err *err);
/* Appends a run, or replaces the last one by a longer one. */
int session_index_put(const struct session_index *x, uint64_t i, const struct session_run *run,
                      struct err *err);
/*
 * The oldest runs are forgotten, so that an agent cannot fill the disk with them; their bytes are
 * long gone. At least SESSION_INDEX_RUNS are kept. session_index_first(): the first kept run at or
 * after i.
 */
enum { SESSION_INDEX_RUNS = 1 << 20 };
uint64_t session_index_first(const struct session_index *x, uint64_t i, uint64_t count);
/* The last run that begins at or before seq, else the first that is kept. The index must not be
 * empty. */
int session_index_find(const struct session_index *x, uint64_t seq, uint64_t *ret, struct err *err);

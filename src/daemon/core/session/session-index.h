/*
 * The order of a session's events. What an agent writes to stdout and to stderr lies in two
 * journals that do not know of each other; the order in which the events of both were first handed
 * out is written down here, before they are, so that every later reader gets the same events under
 * the same numbers. A file `events` in the exec's folder: a head, then runs of events, each the
 * next bytes of one stream. The daemon alone reads and writes it, on the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/journal/journal.h"

struct session_run {
    uint64_t seq;                   /* of its first event */
    uint64_t at[JOURNAL_STREAMS];   /* where both streams stand before it */
    uint32_t part[JOURNAL_STREAMS]; /* pieces of an unfinished line before that */
    uint64_t to;                    /* where its own stream stands after it */
    uint32_t count;                 /* of events */
    uint16_t stream;                /* enum journal_stream */
    uint16_t gap;                   /* the one event of it tells of bytes that nobody has */
};

struct session_index {
    int fd; /* -1: not open */
    uint32_t line_max;
};

/* In the exec's folder, made when missing. -ERR_NOT_FOUND without the folder. */
int session_index_open(struct session_index *x, const char *dir, struct err *err);
void session_index_done(struct session_index *x);

/* How many runs there are; one that a crash of the machine has torn ends them. */
int session_index_count(const struct session_index *x, uint64_t *ret, struct err *err);
int session_index_get(const struct session_index *x, uint64_t i, struct session_run *ret,
                      struct err *err);
/* Appends, or replaces the last one with more of the same. */
int session_index_put(const struct session_index *x, uint64_t i, const struct session_run *run,
                      struct err *err);
/*
 * Of runs whose bytes are long gone the oldest are forgotten, so that an agent cannot fill the disk
 * with them: at most SESSION_INDEX_RUNS are kept for certain. The first that is, at or behind i.
 */
enum { SESSION_INDEX_RUNS = 1 << 20 };
uint64_t session_index_first(const struct session_index *x, uint64_t i, uint64_t count);
/* The last run that begins at or before seq, else the first that is kept; there is at least one. */
int session_index_find(const struct session_index *x, uint64_t seq, uint64_t *ret, struct err *err);

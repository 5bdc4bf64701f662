/*
 * Converts the bytes that an agent writes to the events of its session. Lines are found, long ones
 * are cut into numbered pieces, JSON objects pass unchanged unless they look like our own events,
 * and all other text is wrapped. These functions depend only on the bytes: the same output always
 * gives the same events.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/journal/journal.h"

enum {
    SESSION_LINE_MAX = 1 << 20, /* bytes of a line; the rest becomes further pieces */
    /* Escaping may turn each byte into six; the rest is the wrapper. */
    SESSION_EVENT_MAX = 6 * SESSION_LINE_MAX + 512,
};

/* A line, or a piece of a long line. */
struct session_line {
    const char *data; /* the line or piece without its line end; borrowed */
    size_t len;
    size_t used;   /* bytes of the stream, including the line end */
    uint32_t part; /* 0: a whole line; else the number of this piece, from 1 */
    bool last;     /* the line ends here */
};

/*
 * Finds the next line or piece, after `part` pieces of an unfinished line. max: at most
 * SESSION_LINE_MAX. over: no more bytes will follow. False: more bytes are needed, or none are
 * left.
 */
bool session_line_next(const char *data, size_t len, bool over, uint32_t part, size_t max,
                       struct session_line *ret);

/*
 * Appends the event of a line: the line itself if it is a JSON object on stdout, else
 * {"type":"log",...}. An object whose "type" is one of ours becomes {"type":"agent","event":...}.
 * The buffer needs SESSION_EVENT_MAX.
 */
int session_line_event(const struct session_line *l, enum journal_stream stream,
                       struct buf *b) _must_check_;

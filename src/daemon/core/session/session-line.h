/*
 * From the bytes that an agent writes to the events of its session: lines are found, over-long ones
 * cut into marked pieces, JSON objects passed on and all else wrapped. Pure functions of the bytes,
 * so that the same output gives the same events whoever asks and however often.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/journal/journal.h"

enum {
    SESSION_LINE_MAX = 1 << 20, /* bytes of a line; more of it is the next piece */
    /* An event of a piece: each byte of it may become six, and some words go around it. */
    SESSION_EVENT_MAX = 6 * SESSION_LINE_MAX + 512,
};

/* Where a stream's reading stands: part is 0 between lines, else the pieces of this line so far. */
struct session_line {
    const char *data; /* the line or piece without its line end; borrowed */
    size_t len;
    size_t used;   /* bytes of the stream that it takes */
    uint32_t part; /* 0: a whole line; else the number of this piece, from 1 */
    bool last;     /* the line ends with it */
};

/*
 * The next line or piece of what comes after `part` pieces of an unfinished line. `max` is at most
 * SESSION_LINE_MAX, `over`: no byte will ever follow. False: more bytes are needed, or none are
 * left.
 */
bool session_line_next(const char *data, size_t len, bool over, uint32_t part, size_t max,
                       struct session_line *ret);

/* The event of a line: an object of its own on stdout, or {"type":"log",...}. The buffer needs
 * SESSION_EVENT_MAX. */
int session_line_event(const struct session_line *l, enum journal_stream stream,
                       struct buf *b) _must_check_;

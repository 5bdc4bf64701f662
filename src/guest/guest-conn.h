/*
 * The guest's line to the relay: frames on its stdin and stdout. `exec` and `dial` set both to
 * non-blocking and poll; the copies leave them blocking.
 */
#pragma once

#include <stdbool.h>

#include "proto/guest.h"

enum {
    LINE_IN = 0,
    LINE_OUT = 1,
    LINE_IN_MAX = GUEST_HEAD_SIZE + GUEST_PAYLOAD_MAX,
    LINE_OUT_MAX = 256 << 10,
    LINE_PART_SEC = 5,
    LINE_OUT_FULL = 128 << 10, /* from here on output waits; the rest is for the small frames */
};

struct line {
    struct buf in;  /* read, and not taken as frames yet */
    struct buf out; /* frames that stdout has not taken yet */
    size_t taken;   /* bytes of the frame that line_next() gave last */
    bool gone;      /* the relay is: nothing more can be said */
};

#define LINE_INIT                                                                                  \
    {                                                                                              \
        .in = BUF_INIT(LINE_IN_MAX), .out = BUF_INIT(LINE_OUT_MAX)                                 \
    }

/* Sets both ends to non-blocking. */
int line_open_async(struct line *l, struct err *err);
void line_done(struct line *l);

/* Reads once, when there is room. False when the line has ended. */
bool line_read(struct line *l);
/* 1 and the next whole frame, valid until the next call; 0; -ERR_INVALID. */
int line_next(struct line *l, struct guest_frame *ret, struct err *err);
/* Blocking: 1 a frame, 0 at the end of the line, -ERR_INVALID. */
int line_wait(struct line *l, struct guest_frame *ret, struct err *err);

/* Queued; written when the line takes it. A queue without room for a small frame is a relay that
 * does not read while it goes on asking: it counts as gone. */
void line_say(struct line *l, int put_result);
static inline bool line_has_room(const struct line *l)
{
    return l->out.len < LINE_OUT_FULL;
}
/* Reads up to a frame's worth from fd into the queue: bytes, 0 at its end, or -errno. */
ssize_t line_forward(struct line *l, enum guest_type type, int fd);
/* Writes what the line takes (all of it when blocking). */
void line_flush(struct line *l);
/* All was said: waits until the relay hangs up, which it does when it has heard it. */
void line_part(const struct line *l);

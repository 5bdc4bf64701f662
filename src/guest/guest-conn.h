/*
 * The guest's line to the relay: frames on its stdin and stdout. `exec` and `dial` set both to
 * non-blocking and poll; the copies leave them blocking.
 */
#pragma once

#include <stdbool.h>

#include "proto/guest.h"

enum {
    GUEST_CONN_IN = 0,
    GUEST_CONN_OUT = 1,
    GUEST_CONN_IN_MAX = GUEST_HEAD_SIZE + GUEST_PAYLOAD_MAX,
    GUEST_CONN_OUT_MAX = 256 << 10,
    GUEST_CONN_PART_SEC = 5,
    GUEST_CONN_OUT_FULL =
        128 << 10, /* from here on output waits; the rest is for the small frames */
};

struct guest_conn {
    struct buf in;  /* read, and not taken as frames yet */
    struct buf out; /* frames that stdout has not taken yet */
    size_t taken;   /* bytes of the frame that guest_conn_next() gave last */
    bool gone;      /* the relay is: nothing more can be said */
};

#define GUEST_CONN_INIT                                                                            \
    {                                                                                              \
        .in = BUF_INIT(GUEST_CONN_IN_MAX), .out = BUF_INIT(GUEST_CONN_OUT_MAX)                     \
    }

/* Sets both ends to non-blocking. */
int guest_conn_open_async(struct guest_conn *l, struct err *err);
void guest_conn_done(struct guest_conn *l);

/* Reads once, when there is room. False when the line has ended. */
bool guest_conn_read(struct guest_conn *l);
/* 1 and the next whole frame, valid until the next call; 0; -ERR_INVALID. */
int guest_conn_next(struct guest_conn *l, struct guest_frame *ret, struct err *err);
/* Blocking: 1 a frame, 0 at the end of the line, -ERR_INVALID. */
int guest_conn_wait(struct guest_conn *l, struct guest_frame *ret, struct err *err);

/* Queued; written when the line takes it. A queue without room for a small frame is a relay that
 * does not read while it goes on asking: it counts as gone. */
void guest_conn_say(struct guest_conn *l, int put_result);
static inline bool guest_conn_has_room(const struct guest_conn *l)
{
    return l->out.len < GUEST_CONN_OUT_FULL;
}
/* Reads up to a frame's worth from fd into the queue: bytes, 0 at its end, or -errno. */
ssize_t guest_conn_forward(struct guest_conn *l, enum guest_type type, int fd);
/* Writes what the line takes (all of it when blocking). */
void guest_conn_flush(struct guest_conn *l);
/* All was said: waits until the relay hangs up, which it does when it has heard it. */
void guest_conn_part(const struct guest_conn *l);

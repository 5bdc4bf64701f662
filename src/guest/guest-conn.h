/*
 * The guest's connection to the relay: frames on its stdin and stdout. `exec`, `dial` and `listen`
 * set both to non-blocking and poll; the copies leave them blocking.
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
    GUEST_CONN_OUT_FULL = 128 << 10, /* above it output waits; the rest is for small frames */
};

struct guest_conn {
    struct buf in;  /* read, not yet taken as frames */
    struct buf out; /* frames that are not written yet */
    size_t taken;   /* bytes of the last frame of guest_conn_next() */
    bool gone;      /* the relay is gone: nothing can be sent any more */
};

#define GUEST_CONN_INIT                                                                            \
    {                                                                                              \
        .in = BUF_INIT(GUEST_CONN_IN_MAX), .out = BUF_INIT(GUEST_CONN_OUT_MAX)                     \
    }

/* Sets both ends to non-blocking. */
int guest_conn_open_async(struct guest_conn *l, struct err *err);
void guest_conn_done(struct guest_conn *l);

/* Reads once, if there is room. False if the connection has ended. */
bool guest_conn_read(struct guest_conn *l);
/* 1 and the next whole frame, valid until the next call; 0; -ERR_INVALID. */
int guest_conn_next(struct guest_conn *l, struct guest_frame *ret, struct err *err);
/* Blocking: 1 and a frame, 0 at the end of the connection, -ERR_INVALID. */
int guest_conn_wait(struct guest_conn *l, struct guest_frame *ret, struct err *err);

/* Takes the result of a guest_put_…() into `out`. If the queue had no room for a small frame, the
 * relay keeps sending requests without reading answers: it then counts as gone. */
void guest_conn_queued(struct guest_conn *l, int put_result);
static inline bool guest_conn_has_room(const struct guest_conn *l)
{
    return l->out.len < GUEST_CONN_OUT_FULL;
}
/* Reads at most one frame's payload from fd into the queue: bytes, 0 at its end, or -errno. */
ssize_t guest_conn_forward(struct guest_conn *l, enum guest_type type, int fd);
/* Writes as much of the queue as possible (the whole queue when blocking). */
void guest_conn_flush(struct guest_conn *l);
/* After the last frame: waits until the relay closes the stream, which confirms the frame. */
void guest_conn_part(const struct guest_conn *l);

/*
 * Many connections over one stream (`guest listen`, guest.h). A channel is one of them: a socket at
 * each end, and in between frames with the channel's id. The guest's socket is a connection that a
 * process inside the sandbox made; the relay's socket leads to the package cache. Both ends forward
 * bytes both ways, so both use this code.
 *
 * Each direction of each channel has a window. A sender has at most GUEST_CHANNEL_WINDOW bytes on
 * the way that the other end has not passed on (ACK). So an end can always store what arrives, a
 * slow reader delays no other channel, and a channel's memory is limited. An end that sends more,
 * or names a channel that was never opened, loses the whole stream. Late frames for a channel that
 * has ended are dropped, because its two ends do not end at the same moment.
 *
 * The owner polls the sockets for what guest_channel_wants_read() and guest_channel_wants_write()
 * say. After every call here it removes each channel that is over.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "proto/guest.h"

enum {
    GUEST_MUX_CHANNELS_MAX = 64, /* the package cache's limit for one sandbox */
    GUEST_CHANNEL_WINDOW = 256 << 10,
    GUEST_CHANNEL_CHUNK = 16 << 10,  /* bytes in one frame, so that channels take turns */
    GUEST_CHANNEL_QUEUE = 128 << 10, /* if so much waits for the stream, no socket is read */
};

struct guest_channel {
    uint32_t id;
    int fd;             /* owned; non-blocking */
    struct buf pending; /* received from the stream, not yet written to the socket */
    uint32_t credit;    /* bytes that the other end can still take */
    uint32_t owed;      /* bytes written to the socket and not yet acknowledged */
    bool in_eof;        /* the other end sends no more */
    bool shut;          /* and the socket is shut down for writing */
    bool out_eof;       /* the socket has ended, and the other end knows it */
    bool over;          /* the owner must remove it */
};

/* The channels of one stream. */
struct guest_mux {
    enum guest_side side; /* ours */
    struct buf *out;      /* borrowed: frames for the other end */
    uint32_t last;        /* the newest id; 0: no channel yet */
    size_t n;
    struct guest_channel *all[GUEST_MUX_CHANNELS_MAX]; /* borrowed from the owner */
    bool choked; /* `out` was full: the other end does not read, so the stream is useless */
};

/* Adds a channel with the next id, which is returned. n must be below GUEST_MUX_CHANNELS_MAX. Takes
 * the fd. */
uint32_t guest_mux_add(struct guest_mux *s, struct guest_channel *c, int fd);
/* Closes the socket and frees the channel's buffers. A channel that has not ended in both
 * directions is reset, so that its peer sees that bytes are missing. */
void guest_mux_remove(struct guest_mux *s, struct guest_channel *c);

/* Takes a frame of the other end, except CALL_OPEN. 1 and the channel; 0: the channel has already
 * ended; -ERR_INVALID: the other end breaks the protocol. */
int guest_mux_take(struct guest_mux *s, const struct guest_frame *f, struct guest_channel **ret,
                   struct err *err);

bool guest_channel_wants_read(const struct guest_mux *s, const struct guest_channel *c);
bool guest_channel_wants_write(const struct guest_channel *c);
void guest_channel_read(struct guest_mux *s, struct guest_channel *c);  /* its socket is readable */
void guest_channel_write(struct guest_mux *s, struct guest_channel *c); /* or writable */
void guest_channel_break(struct guest_mux *s, struct guest_channel *c); /* sends CLOSE, ends it */
/* Sends CLOSE for an id without a channel. */
void guest_mux_refuse(struct guest_mux *s, uint32_t id);

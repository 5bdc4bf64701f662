/*
 * A connection out of many that share one line (`guest listen`, guest.h): at either end a socket,
 * and in between frames with the connection's id. The guest's end is a connection that was made
 * inside the sandbox, the relay's end one to the package registry; both carry bytes both ways, so
 * both use this.
 *
 * Each direction of each connection has a window of its own. Its sender has at most GUEST_CHANNEL_WINDOW
 * bytes on the way that the other end has not passed on (ACK): so an end can always take what comes
 * in by the line, a connection whose reader is slow holds up no other, and it costs no more memory
 * than that. An end that sends more, or speaks of a connection that was never opened, is cut off.
 * What comes late for one that has ended is dropped: its ends do not end at the same moment.
 *
 * The owner polls the sockets, for what guest_channel_wants_read() and guest_channel_wants_write() say, and
 * after every call here it removes a channel that is over.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "proto/guest.h"

enum {
    GUEST_MUX_CHANNELS_MAX = 64, /* as many as the registry takes of one sandbox */
    GUEST_CHANNEL_WINDOW = 256 << 10,
    GUEST_CHANNEL_CHUNK = 16 << 10,  /* in one frame: others come in between */
    GUEST_CHANNEL_QUEUE = 128 << 10, /* waits for the line already: then no socket is read */
};

struct guest_channel {
    uint32_t id;
    int fd;             /* owned; does not block */
    struct buf pending; /* came by the line, and the socket has not taken it */
    uint32_t credit;    /* bytes that the other end can still take */
    uint32_t owed;      /* bytes that the socket took, which were not acknowledged */
    bool in_eof;        /* nothing more comes by the line */
    bool shut;          /* and the socket was told */
    bool out_eof;       /* nothing more comes from the socket, and the line was told */
    bool over;          /* to be removed */
};

/* Those of one line. */
struct guest_mux {
    enum guest_side side; /* ours */
    struct buf *out;      /* borrowed: frames for the other end */
    uint32_t last;        /* the newest id; 0: none yet */
    size_t n;
    struct guest_channel
        *all[GUEST_MUX_CHANNELS_MAX]; /* borrowed: the owner's, often part of something larger */
    bool choked; /* `out` was full: the other end does not read, and the line is of no use */
};

/* With the next id, which is returned. Only when n is below GUEST_MUX_CHANNELS_MAX. Takes the fd. */
uint32_t guest_mux_add(struct guest_mux *s, struct guest_channel *c, int fd);
/* Closes the socket and releases what it holds. One that has not ended both ways is reset, so that
 * its peer does not take what came for the whole. */
void guest_mux_remove(struct guest_mux *s, struct guest_channel *c);

/* A frame of the other end, but for CALL_OPEN. 1 and the channel; 0: that one has ended before;
 * -ERR_INVALID: the other end breaks the rules. */
int guest_mux_take(struct guest_mux *s, const struct guest_frame *f, struct guest_channel **ret,
                   struct err *err);

bool guest_channel_wants_read(const struct guest_mux *s, const struct guest_channel *c);
bool guest_channel_wants_write(const struct guest_channel *c);
void guest_channel_read(struct guest_mux *s, struct guest_channel *c);  /* its socket is readable */
void guest_channel_write(struct guest_mux *s, struct guest_channel *c); /* or writable */
void guest_channel_break(struct guest_mux *s, struct guest_channel *c); /* from our side; says so */
/* To an id that we have no channel for, and want none. */
void guest_mux_refuse(struct guest_mux *s, uint32_t id);

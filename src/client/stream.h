/*
 * The stream of one exec: what comes back after an upgrade to `ripcord-exec/1`. Never blocks but in
 * stream_open() and stream_resume(); meant for a poll loop over stream_fd().
 *
 * Output is handed out in place, from the receive buffer: no copy between socket and caller. The
 * stream counts the offsets, so that each byte is handed out exactly once whatever the daemon
 * repeats, and after a lost connection stream_resume() goes on at the very next byte. Bytes that
 * are gone for good come as a STREAM_GAP, never silently.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"
#include "lib/base/json.h"

enum { STREAM_STDOUT = 1, STREAM_STDERR = 2 };

enum stream_event_type {
    STREAM_NOTHING, /* call stream_fill() when the socket is readable */
    STREAM_STARTED, /* sandbox and exec are known */
    STREAM_OUTPUT,
    STREAM_GAP,
    STREAM_END, /* the end record; the last event */
};

struct stream_event {
    enum stream_event_type type;
    int stream;       /* STREAM_STDOUT or STREAM_STDERR */
    const char *data; /* OUTPUT; borrowed until the next stream_fill() */
    size_t len;
    uint64_t from, to; /* OUTPUT: from is the offset of data; GAP: these bytes are missing */
    const json_t *end; /* END; borrowed from the stream */
};

struct stream {
    struct client *client; /* borrowed; for stream_resume() */
    int fd;                /* owned; -1 while lost */
    char *mem;             /* owned receive buffer */
    size_t off, len;
    struct buf out;           /* frames that the socket has not taken yet */
    char *sandbox;            /* owned; NULL before STREAM_STARTED */
    char *exec;               /* owned */
    uint64_t next[3];         /* next offset expected, by stream number */
    struct stream_event held; /* output behind a gap that the daemon did not announce */
    json_t *unenforced;       /* owned; a run's default limits that do not hold, or NULL */
    json_t *end;              /* owned */
};

/*
 * Sends the request with the upgrade and waits for the answer. The client's connection goes to the
 * stream.
 */
int stream_open(struct stream *s, struct client *c, const char *target, const json_t *body,
                struct err *err);
/* Re-joins an exec at the given offsets, or replays an ended one. */
int stream_attach(struct stream *s, struct client *c, const char *sandbox, const char *exec,
                  uint64_t stdout_offset, uint64_t stderr_offset, struct err *err);
void stream_done(struct stream *s);
#define _cleanup_stream_ __attribute__((cleanup(stream_done)))

/* Receives what there is: 1, 0 when that is nothing, -ERR_ENGINE when the connection is lost. */
int stream_fill(struct stream *s, struct err *err);
/* The next event out of what was received. An error is either the daemon's word that the exec could
 * not be run or followed, or a broken protocol. */
int stream_next(struct stream *s, struct stream_event *ret, struct err *err);

/* Queue, then send what the socket takes. 1 when all is sent, 0 when some remains (poll for
 * POLLOUT, then stream_flush()), or -ERR_ENGINE. */
int stream_stdin(struct stream *s, const void *data, size_t len, struct err *err);
int stream_stdin_eof(struct stream *s, struct err *err);
int stream_signal(struct stream *s, int sig, struct err *err);
int stream_resize(struct stream *s, unsigned rows, unsigned cols, struct err *err);
int stream_detach(struct stream *s, struct err *err);
int stream_flush(struct stream *s, struct err *err);
static inline bool stream_sending(const struct stream *s)
{
    return s->out.len > 0;
}

/*
 * After a lost connection, once STREAM_STARTED was seen: connects again (starting the daemon when
 * it is gone) and attaches at the offsets reached, trying until the deadline. Queued frames are
 * dropped: what the old connection did of them is unknown.
 */
int stream_resume(struct stream *s, const struct deadline *by, struct err *err);

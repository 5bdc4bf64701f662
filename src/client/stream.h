/*
 * The stream of one exec, after an upgrade to `ripcord-exec/1`. Only stream_open(), stream_attach()
 * and stream_resume() block; the other functions are made for a poll loop over the descriptor `fd`.
 *
 * Output is delivered in place, from the receive buffer, without a copy. The stream counts offsets:
 * each byte is delivered once even if the daemon repeats it, and after a lost connection
 * stream_resume() continues at the next byte. Lost bytes are reported as a STREAM_GAP.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "client/client.h"
#include "lib/base/json.h"

enum { STREAM_STDOUT = 1, STREAM_STDERR = 2 };

enum stream_event_type {
    STREAM_NOTHING, /* call stream_fill() when the socket is readable */
    STREAM_STARTED, /* the names of sandbox and exec are known */
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

struct client_stream {
    struct client *client; /* borrowed; for stream_resume() */
    int fd;                /* owned; -1 while lost */
    char *mem;             /* owned receive buffer */
    size_t off, len;
    struct buf out;   /* frames that are not sent yet */
    char *sandbox;    /* owned; NULL before STREAM_STARTED */
    char *exec;       /* owned */
    uint64_t next[3]; /* next offset expected, by stream number */
    struct stream_event
        held;           /* output after a gap that the daemon did not report; delivered next */
    json_t *isolation;  /* owned: "confined" or "strict", or NULL */
    json_t *unenforced; /* owned: names of default limits that are not enforced, or NULL */
    json_t *warnings;   /* owned: other warnings about the sandbox, or NULL */
    json_t *end;        /* owned */
};

/*
 * Sends the request with the upgrade and waits for the response. The stream takes over the
 * connection of the client.
 */
int stream_open(struct client_stream *s, struct client *c, const char *target, const json_t *body,
                struct err *err);
/* Attaches to an exec at the given offsets, or replays an ended one. */
int stream_attach(struct client_stream *s, struct client *c, const char *sandbox, const char *exec,
                  uint64_t stdout_offset, uint64_t stderr_offset, struct err *err);
void stream_done(struct client_stream *s);
#define _cleanup_stream_ __attribute__((cleanup(stream_done)))

/* Receives available data. Returns 1, 0 without data, or -ERR_ENGINE when the connection is
 * lost. */
int stream_fill(struct client_stream *s, struct err *err);
/* Takes the next event from the received data. An error is either reported by the daemon (the exec
 * could not be run or followed) or a protocol error. */
int stream_next(struct client_stream *s, struct stream_event *ret, struct err *err);

/* These functions queue a frame and send as much as the socket accepts. They return 1 when all is
 * sent, 0 when bytes remain (poll for POLLOUT, then call stream_flush()), or -ERR_ENGINE. */
int stream_stdin(struct client_stream *s, const void *data, size_t len, struct err *err);
int stream_stdin_eof(struct client_stream *s, struct err *err);
int stream_signal(struct client_stream *s, int sig, struct err *err);
int stream_resize(struct client_stream *s, unsigned rows, unsigned cols, struct err *err);
int stream_detach(struct client_stream *s, struct err *err);
int stream_flush(struct client_stream *s, struct err *err);
static inline bool stream_sending(const struct client_stream *s)
{
    return s->out.len > 0;
}

/*
 * Reconnects after a lost connection, if STREAM_STARTED was seen. It starts the daemon if
 * necessary, attaches at the next offsets, and retries until the deadline. Queued frames are
 * dropped, because it is unknown which of them the daemon has received.
 */
int stream_resume(struct client_stream *s, const struct deadline *by, struct err *err);

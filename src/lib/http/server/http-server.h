/*
 * Our HTTP/1.1 server on the loop. Parses with lib/http/wire/http.h, answers every malformed
 * request with a JSON error and closes, keeps connections alive, streams bodies both ways with
 * back-pressure, upgrades, and sees a peer's close at once, also while a response is pending or
 * streaming. Unix listeners check peer credentials (same uid or root) before reading a byte.
 *
 * Limits: head 16 KiB / 64 fields / 10 s, idle between requests 60 s, body stall 30 s, write stall
 * 60 s, connections per server bounded (a further one is answered 429 and closed; EMFILE survived
 * by a reserve descriptor).
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/http/wire/http.h"

struct loop;
struct http_server;
struct http_conn; /* one connection */
struct http_req;  /* one request and its response; lives until the response is finished and the peer
                     has it, or the peer has gone */

/* The whole body, when the route wants it buffered (max given by the route); called once per
 * request. */
typedef void (*http_handler_fn)(void *arg, struct http_req *req);

struct http_server_config {
    http_handler_fn on_request; /* body complete (limit below) or, for an upgrade request, head and
                                   body complete */
    /* Decides from the head that the body is streamed to the handler, see http_body_start(). NULL:
     * none is. */
    bool (*want_stream)(void *arg, const struct http_head *head, const char *path);
    void *arg;
    /* Decides from the head, before anything else of the request is looked at or read: 0, or the
     * status that it is refused with, and *err. The connection ends with a refusal. NULL: all
     * are taken. */
    int (*admit)(void *arg, const struct http_head *head, struct err *err);
    void *admit_arg;
    /* Decides who is hung up on without a word, by the connection alone. NULL: nobody is. */
    bool (*turn_away)(void *arg, int fd);
    void *turn_away_arg;
    size_t body_max; /* larger: 413 before anything is allocated */
    unsigned connections_max;
    bool any_peer;   /* do not look at a peer's credentials: the socket is not ours alone, or TCP */
    bool raw_target; /* the target is not split: http_req_path() is NULL, the handler reads it from
                        the head */
    uint64_t head_timeout, idle_timeout, stall_timeout; /* usec; 0: the defaults above */
};

int http_server_new(struct loop *l, const struct http_server_config *config,
                    struct http_server **ret, struct err *err);
/* Takes a listening socket. */
int http_server_listen(struct http_server *s, int listen_fd, struct err *err);
void http_server_stop_accepting(struct http_server *s);
/* Ends all connections, whatever they are about; each request's on_gone is called. Not from a
 * handler. */
void http_server_drop(struct http_server *s);
void http_server_free(
    struct http_server *s); /* closes all connections; each request's on_gone is called */

/* -- the request (valid until the response ends or on_gone) -- */
const struct http_head *http_req_head(const struct http_req *r);
bool http_req_is_local(const struct http_req *r);     /* by a unix socket that knows its peers */
const char *http_req_path(const struct http_req *r);  /* decoded */
const char *http_req_query(const struct http_req *r); /* raw, or NULL */
const char *http_req_body(const struct http_req *r, size_t *len);
void http_req_set_user(struct http_req *r, void *user);
void *http_req_user(const struct http_req *r);
/* Called once if the peer goes away before the response has been finished (the req must not be used
 * after it returns). Without one the request stays valid and its output is dropped until the
 * response is ended. */
typedef void (*http_gone_fn)(struct http_req *r);
void http_req_on_gone(struct http_req *r, http_gone_fn fn);

/*
 * A streamed body: on_request comes right after the head, with an empty http_req_body(), and
 * nothing of the body is read before http_body_start(). on_data gets its pieces (pause with
 * http_body_read(r, false)), on_end follows the last. A body that is cut, malformed or stalls is
 * refused by the server and on_gone is called. An answer before on_end is fine: what is left of the
 * body is dropped with the connection.
 */
typedef void (*http_data_fn)(struct http_req *r, const char *data, size_t len);
struct http_body_events {
    http_data_fn on_data;
    http_gone_fn on_end;
};
void http_body_start(struct http_req *r, const struct http_body_events *events);
void http_body_read(struct http_req *r, bool on);

/* -- the response: exactly one of these ends or starts it -- */
void http_reply(struct http_req *r, int status, const char *content_type, const void *body,
                size_t len);                                    /* r is gone after */
void http_reply_err(struct http_req *r, const struct err *err); /* JSON error; r is gone after */

/* As above, with more said in the head. Texts are the caller's and hold no line break; NULL leaves
 * a field out, or takes the usual reason. */
struct http_answer {
    int status;
    const char *reason, *content_type;
    const char *extra; /* further lines, each "Name: value\r\n" */
};
void http_reply_with(struct http_req *r, const struct http_answer *a, const void *body, size_t len);
/* Takes a malloc'd body. */
void http_reply_take(struct http_req *r, const struct http_answer *a, char *owned, size_t len);

/* Chunked stream: start, then write pieces; on_drain is called when all written bytes have reached
 * the kernel, on a later turn also where a write found room at once. */
typedef void (*http_drain_fn)(struct http_req *r);
void http_stream_start(struct http_req *r, int status, const char *content_type,
                       http_drain_fn on_drain);
/* A stream of declared length: exactly so many bytes follow, or http_stream_abort(). */
void http_stream_start_length(struct http_req *r, const struct http_answer *a, uint64_t length,
                              http_drain_fn on_drain);
void http_stream_write(
    struct http_req *r, const void *data,
    size_t len); /* copies; wait for on_drain before the next when pending > 256 KiB */
size_t http_stream_pending(const struct http_req *r);
void http_stream_end(struct http_req *r); /* r is gone after */
/* Ends it without the last chunk, so that the peer sees that it is not whole; r is gone after. */
void http_stream_abort(struct http_req *r);

/*
 * Upgrade: answers 101 with `protocol`; from then on the connection carries raw bytes. on_data gets
 * what arrives (pause with http_raw_read(r, false)); on_eof is the peer's half-close (NULL: as
 * gone); on_gone as above, also while paused, whatever lies unread. No write stall applies: the
 * peer may be a pager. Writing as for streams, with http_raw_write (copies) or http_raw_take (takes
 * a malloc'd block, no copy).
 */
struct http_raw_events {
    http_data_fn on_data;
    http_gone_fn on_eof; /* may be NULL */
    http_drain_fn on_drain;
};
void http_upgrade(struct http_req *r, const char *protocol, const struct http_raw_events *events);
void http_raw_read(struct http_req *r, bool on);
void http_raw_write(struct http_req *r, const void *data, size_t len);
void http_raw_take(struct http_req *r, char *owned, size_t len);
/* Half-close: nothing more will be written; the peer sees the end when the rest is out. From then
 * on a peer that goes is one that has sent all: on_eof, not on_gone. */
void http_raw_end(struct http_req *r);
void http_raw_close(struct http_req *r); /* flushes what is pending, then closes; r is gone after */

/*
 * The HTTP/1.1 server on the loop. It parses with lib/http/wire/http.h, answers a malformed request
 * with a JSON error and closes, keeps connections alive, streams bodies in both directions with
 * back-pressure, and upgrades connections. It notices at once when a peer closes, also while a
 * response is pending or streaming. Unix listeners check the credentials of the peer (same uid or
 * root) before they read a byte.
 *
 * Limits: head 16 KiB / 64 fields / 10 s, idle between requests 60 s, body stall 30 s, write stall
 * 60 s. The connections of a server are limited: one more is answered with 429 and closed. A
 * reserve descriptor lets it answer when descriptors run out (EMFILE). A stream of Server-Sent
 * Events that is silent for 15 s gets a comment, so that proxies keep it open and clients notice a
 * dead connection.
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
struct http_req;  /* one request and its response; lives until the response is sent or the peer has
                     gone */

enum { HTTP_ID_SIZE = 65 };

/* Called once per request. */
typedef void (*http_handler_fn)(void *arg, struct http_req *req);

struct http_server_config {
    http_handler_fn on_request; /* called when head and body (up to body_max) are
                                   complete */
    /* Whether the body of this request is streamed to the handler, see http_body_start(). NULL:
     * never. */
    bool (*want_stream)(void *arg, const struct http_head *head, const char *path);
    /* Gives the request an id, printable and with its NUL, that all its responses carry as
     * X-Request-Id. Called before the request is checked. r NULL: its head could not be read. NULL:
     * requests have no id. */
    void (*identify)(void *arg, const struct http_req *r, char *ret);
    void *arg;
    /* Decides by the head, before anything else is checked or read: 0 accepts the request; a status
     * with *err refuses it and closes the connection. NULL: all requests are accepted. */
    int (*admit)(void *arg, const struct http_head *head, struct err *err);
    void *admit_arg;
    /* Whether a new connection is closed without an answer. NULL: never. */
    bool (*turn_away)(void *arg, int fd);
    void *turn_away_arg;
    /* The members of `details` in an error about this request, as JSON without braces, such as
     * "sandbox":"box"; malloc'd, or NULL. NULL: none. */
    char *(*describe)(const struct http_req *req);
    size_t body_max;   /* a larger body gets 413 before anything is allocated */
    size_t bodies_max; /* bytes of all bodies over 1 MiB together; further ones wait for up to the
                          body stall, then get 429. 0: no limit */
    unsigned connections_max;
    bool any_peer; /* do not check credentials: TCP, or a socket that other users may use */
    /* Whether the target of this request is not split: http_req_path() is NULL, and the handler
     * parses the target of the head. NULL: never. */
    bool (*raw_target)(void *arg, const struct http_head *head);
    /* usec; 0: the defaults above */
    uint64_t head_timeout, idle_timeout, stall_timeout, heartbeat;
};

int http_server_new(struct loop *l, const struct http_server_config *config,
                    struct http_server **ret, struct err *err);
/* Takes a listening socket. */
int http_server_listen(struct http_server *s, int listen_fd, struct err *err);
void http_server_stop_accepting(struct http_server *s);
/* Closes all connections and calls on_gone of each request. Do not call it from a handler. */
void http_server_drop(struct http_server *s);
void http_server_free(
    struct http_server *s); /* closes all connections; each request's on_gone is called */

/* -- the request (valid until the response ends or on_gone) -- */
const struct http_head *http_req_head(const struct http_req *r);
bool http_req_is_local(
    const struct http_req *r); /* came over a unix socket with checked credentials */
const char *http_req_path(const struct http_req *r);  /* decoded */
const char *http_req_query(const struct http_req *r); /* raw, or NULL */
const char *http_req_body(const struct http_req *r, size_t *len);
void http_req_drop_body(struct http_req *r); /* frees it early, for the next large request */
void http_req_set_user(struct http_req *r, void *user);
void *http_req_user(const struct http_req *r);
/* Called once if the peer goes away before the response is finished. The req must not be used after
 * it returns. Without on_gone the request stays valid, and its output is dropped until the response
 * ends. */
typedef void (*http_gone_fn)(struct http_req *r);
void http_req_on_gone(struct http_req *r, http_gone_fn fn);

/*
 * A streamed body: on_request is called right after the head, with an empty http_req_body(). The
 * server reads nothing of the body before http_body_start(). on_data gets its pieces (pause with
 * http_body_read(r, false)); on_end follows the last piece. The server refuses a body that is cut,
 * malformed or stalled, and calls on_gone. A handler may answer before on_end: the connection then
 * closes without reading the rest.
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
                size_t len); /* r is gone after */
/* JSON error; r is gone after. extra: header lines, each with its line break, or NULL. Bytes that
 * are not UTF-8 are replaced one by one, so that the rest of the message stays readable. */
void http_reply_err(struct http_req *r, const char *extra, const struct err *err);
/* The same with another status than that of the code. */
void http_reply_err_status(struct http_req *r, int status, const char *extra,
                           const struct err *err);

/* A response with more control over the head. The texts are borrowed and hold no line break. NULL
 * omits a field, or uses the standard reason. */
struct http_answer {
    int status;
    const char *reason, *content_type;
    const char *extra; /* more lines, each "Name: value\r\n" */
};
void http_reply_with(struct http_req *r, const struct http_answer *a, const void *body, size_t len);
/* Takes a malloc'd body. */
void http_reply_take(struct http_req *r, const struct http_answer *a, char *owned, size_t len);

/* A chunked stream: start it, then write pieces. on_drain is called when the kernel has all written
 * bytes, always on a later turn of the loop. */
typedef void (*http_drain_fn)(struct http_req *r);
void http_stream_start(struct http_req *r, int status, const char *content_type,
                       http_drain_fn on_drain);
/* The same with header lines of the caller. */
void http_stream_start_with(struct http_req *r, const struct http_answer *a,
                            http_drain_fn on_drain);
/* A stream of declared length: exactly `length` bytes must follow, or http_stream_abort(). */
void http_stream_start_length(struct http_req *r, const struct http_answer *a, uint64_t length,
                              http_drain_fn on_drain);
void http_stream_write(
    struct http_req *r, const void *data,
    size_t len); /* copies; wait for on_drain before the next when pending > 256 KiB */
size_t http_stream_pending(const struct http_req *r);
void http_stream_end(struct http_req *r); /* r is gone after */
/* Ends it without the last chunk, so that the peer sees an incomplete body; r is gone after. */
void http_stream_abort(struct http_req *r);

/*
 * Upgrade: answers 101 with `protocol`; then the connection carries raw bytes. on_data gets the
 * bytes that arrive (pause with http_raw_read(r, false)). on_eof reports the half-close of the peer
 * (NULL: treated as gone). on_gone is called as above, also while paused and with unread bytes.
 * There is no write timeout: the peer may be a pager. Write as to a stream, with http_raw_write
 * (copies) or http_raw_take (takes a malloc'd block).
 */
struct http_raw_events {
    http_data_fn on_data;
    http_gone_fn on_eof; /* may be NULL */
    http_drain_fn on_drain;
};
void http_upgrade(struct http_req *r, const char *protocol, const struct http_raw_events *events);
/* The same with header lines of the caller, each with its line break. */
void http_upgrade_with(struct http_req *r, const char *protocol, const char *extra,
                       const struct http_raw_events *events);
void http_raw_read(struct http_req *r, bool on);
void http_raw_write(struct http_req *r, const void *data, size_t len);
void http_raw_take(struct http_req *r, char *owned, size_t len);
/* Half-close: no more writes; the peer sees the end when all bytes are sent. When the peer closes
 * after this, on_eof is called instead of on_gone. */
void http_raw_end(struct http_req *r);
void http_raw_close(struct http_req *r); /* flushes what is pending, then closes; r is gone after */

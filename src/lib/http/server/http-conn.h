/*
 * Inside of the HTTP server: the structs that http-server.c (accepting), http-conn.c (bytes in and
 * out, time, closing), http-request.c (bytes to requests) and http-response.c (answers) share.
 * Nobody else includes this.
 */
#pragma once

#include <stdbool.h>
#include <sys/uio.h>
#include <uv.h>

#include "lib/base/buf.h"
#include "lib/http/server/http-server.h"
#include "lib/http/wire/http.h"
#include "lib/loop/loop.h"

enum {
    CONN_READ_SIZE = 64 << 10, /* one recv() */
    CONN_OUT_MAX =
        32 << 20, /* output that a careless writer may pile up before the connection is cut */
    CONN_LINGER_MAX = 1 << 20, /* bytes of a refused request that we read and drop */
};

/* The states in which a handler holds the request are those from BUSY to RAW. */
enum conn_state {
    CONN_HEAD,   /* between requests or inside a head */
    CONN_BODY,   /* inside a request's body */
    CONN_BUSY,   /* the handler has it and has not answered */
    CONN_STREAM, /* a chunked response is under way */
    CONN_RAW,    /* upgraded */
    CONN_FLUSH,  /* response complete, its last bytes not yet with the kernel */
    CONN_LINGER, /* our side is shut; we wait for the peer to see it */
    CONN_CLOSED, /* handles are closing */
};

enum conn_wait { WAIT_NONE, WAIT_HEAD, WAIT_IDLE, WAIT_BODY, WAIT_WRITE, WAIT_LINGER };

struct http_server {
    struct loop *loop;
    struct http_server_config config;
    struct http_conn *conns; /* list of the open ones */
    unsigned n_conns;
    unsigned refs; /* the owner's, and one for each connection not yet freed */
    int listen_fd, reserve_fd;
    struct loop_watch *listen_watch;
    struct loop_timer *listen_retry;
    char scratch[CONN_READ_SIZE]; /* what one recv() gave; used up before the callback ends */
};

struct http_out {
    struct http_out *next;
    char *mem; /* owned */
    size_t off, len, cap;
};

struct http_conn {
    struct http_server *server;
    struct http_conn *next, *prev;
    uv_poll_t poll;
    uv_timer_t timer;
    unsigned refs; /* the two handles above, and a deferred call */
    int fd;
    int events;          /* what poll watches now */
    enum conn_wait wait; /* what timer counts now */
    enum conn_state state;
    bool eof;         /* read to the end of what the peer sends */
    bool half_closed; /* the peer sends no more; bytes may still be unread */
    bool broken;      /* sending failed: output is dropped; closed on the next turn */
    bool close_after; /* no further request on this connection */
    bool served;      /* has had a request */
    bool more;        /* c->in may hold the next request already */
    bool raw_reading;
    bool raw_ended;    /* we write no more: our side is shut when all is out */
    bool write_shut;   /* it is */
    bool body_open;    /* a streamed body of which more is to come */
    bool body_reading; /* and its reader wants it */
    bool drain_due;    /* tell the writer on the next turn that all is out */
    bool deferred;

    struct buf in;
    size_t scanned;   /* of in, by http_head_find() */
    size_t discarded; /* while lingering */
    struct http_chunked chunked;
    uint64_t body_left;
    struct http_req *req;

    struct http_out *out, *out_tail;
    size_t out_bytes;
};

struct http_req {
    struct http_conn *conn; /* NULL once the peer has gone */
    char *head_mem, *target_mem;
    size_t head_len; /* of head_mem */
    struct http_head head;
    char *path, *query; /* in target_mem */
    struct buf body;
    void *user;
    http_gone_fn on_gone;
    http_drain_fn on_drain;
    struct http_raw_events raw;
    struct http_body_events body_events;
    bool chunked, no_body; /* of the response */
};

/* http-conn.c */
void conn_new(struct http_server *s, int fd); /* takes the fd */
/* Sends or queues a copy; with n 0 only makes on_drain due. Never calls back from here. */
void conn_write(struct http_conn *c, const struct iovec *iov, int n);
void conn_write_take(struct http_conn *c, char *owned, size_t len);
/* The response is complete: on to the next request, or to the end. */
void conn_finish(struct http_conn *c);
void conn_gone(struct http_conn *c);   /* closes at once and tells the handler */
void conn_update(struct http_conn *c); /* events, timer and deferred work that fit the state; after
                                          every change */
void server_unref(struct http_server *s);

/* http-request.c */
void conn_input(struct http_conn *c); /* c->in holds new bytes, in CONN_HEAD or CONN_BODY */
void conn_body(struct http_conn *c);  /* hands a streamed body on, as far as it has come */
/* Answers a request whose streamed body went wrong; its handler is told that it is gone. */
void conn_refuse_body(struct http_conn *c, int status, const struct err *err);
void req_free(struct http_req *r);

/* http-response.c */
/* Answers a request that never reached a handler, and ends the connection. */
void conn_refuse(struct http_conn *c, int status, const struct err *err);
int response_error(struct buf *b, int status, const struct err *err, bool close) _must_check_;

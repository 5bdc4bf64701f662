/*
 * Inside of the HTTP server: the structs that its files share. http-server.c accepts connections,
 * http-conn.c moves bytes, counts time and closes, http-request.c parses requests, http-room.c
 * limits the memory of their bodies, http-response.c writes responses. Only these files include
 * this header.
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
    CONN_READ_SIZE = 64 << 10,  /* one recv() */
    CONN_OUT_MAX = 32 << 20,    /* unsent output; a writer that exceeds it loses the connection */
    CONN_LINGER_MAX = 64 << 20, /* bytes of a refused request that are read and dropped */
    ROOM_SMALL = 1 << 20,       /* bodies up to this size need no room */
};

/* A handler holds the request in the states from BUSY to RAW. */
enum conn_state {
    CONN_HEAD,   /* between requests or inside a head */
    CONN_QUEUED, /* waits for room for its body */
    CONN_BODY,   /* inside a request's body */
    CONN_BUSY,   /* the handler has the request and has not answered */
    CONN_STREAM, /* a streamed response is being sent */
    CONN_RAW,    /* upgraded */
    CONN_FLUSH,  /* the response is complete; the kernel does not have its last bytes yet */
    CONN_LINGER, /* our side is shut down; waits for the peer to see it */
    CONN_CLOSED, /* handles are closing */
};

enum conn_wait {
    WAIT_NONE,
    WAIT_HEAD,
    WAIT_IDLE,
    WAIT_ROOM,
    WAIT_BODY,
    WAIT_WRITE,
    WAIT_SILENCE, /* of a stream of Server-Sent Events */
    WAIT_LINGER,
};

struct http_server {
    struct loop *loop;
    struct http_server_config config;
    struct http_conn *conns; /* list of the open ones */
    unsigned n_conns;
    unsigned refs; /* one for the owner, and one per connection */
    int listen_fd, reserve_fd;
    struct loop_watch *listen_watch;
    struct loop_timer *listen_retry;
    size_t room_used;                         /* of config.bodies_max */
    struct http_conn *room_first, *room_last; /* those that wait for room */
    char scratch[CONN_READ_SIZE]; /* bytes of one recv(); consumed before the callback ends */
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
    unsigned refs; /* the two handles above, and the deferred call */
    int fd;
    int events;          /* the events that poll watches */
    enum conn_wait wait; /* what the timer counts */
    enum conn_state state;
    bool eof;         /* all bytes of the peer are read */
    bool half_closed; /* the peer sends no more; bytes may still be unread */
    bool broken;      /* sending failed: output is dropped; closed on the next turn */
    bool close_after; /* no further request on this connection */
    bool served;      /* has had a request */
    bool more;        /* c->in may hold the next request already, or the first of a body */
    bool raw_reading;
    bool raw_ended;    /* no more writes: our side is shut down when all bytes are sent */
    bool write_shut;   /* our side is shut down */
    bool body_open;    /* more of a streamed body will come */
    bool body_reading; /* the handler wants to read it */
    bool drain_due;    /* call on_drain on the next turn */
    bool deferred;

    struct buf in;
    struct http_conn *room_next; /* in the queue for room */
    size_t room_wanted;          /* 0: not in the queue */
    size_t scanned;              /* position of http_head_find() in `in` */
    size_t discarded;            /* while lingering */
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
    size_t room; /* reserved for the body */
    void *user;
    http_gone_fn on_gone;
    http_drain_fn on_drain;
    struct http_raw_events raw;
    struct http_body_events body_events;
    bool chunked, no_body; /* of the response */
    bool events, silent;   /* it is a stream of events; none since the last heartbeat was due */
    char id[HTTP_ID_SIZE];
};

/* http-conn.c */
void conn_new(struct http_server *s, int fd); /* takes the fd */
/* Sends or queues a copy; with n 0 it only schedules on_drain. It never calls back directly. */
void conn_write(struct http_conn *c, const struct iovec *iov, int n);
void conn_write_take(struct http_conn *c, char *owned, size_t len);
/* The response is complete: reads the next request, or closes. */
void conn_finish(struct http_conn *c);
void conn_gone(struct http_conn *c);   /* closes at once and calls on_gone */
void conn_update(struct http_conn *c); /* sets events, timer and deferred work for the state; call
                                          it after every change */
void server_unref(struct http_server *s);

/* http-room.c */
/* Whether a body of this size may be read now. Else the connection is in the queue, and
 * conn_begin_body() is called when there is room. */
bool room_take(struct http_conn *c, size_t bytes);
void room_leave(struct http_conn *c); /* leaves the queue; fine if it is not in it */
/* The body is gone, or its connection. */
void room_give_back(struct http_req *r);

/* http-request.c */
void conn_begin_body(struct http_conn *c); /* the body may come */
void conn_input(struct http_conn *c);      /* c->in holds new bytes, in CONN_HEAD or CONN_BODY */
void conn_body(struct http_conn *c);       /* passes on the received part of a streamed body */
/* Answers a request whose streamed body failed, and calls on_gone of its handler. */
void conn_refuse_body(struct http_conn *c, int status, const struct err *err);
void req_free(struct http_req *r);

/* http-response.c */
/* Answers a request that reached no handler, and closes the connection. */
void conn_refuse(struct http_conn *c, int status, const struct err *err);
/* The same for a request that is no longer that of the connection. */
void conn_refuse_as(struct http_conn *c, const char *id, int status, const struct err *err);
int response_error(struct buf *b, const char *id, int status, const struct err *err) _must_check_;

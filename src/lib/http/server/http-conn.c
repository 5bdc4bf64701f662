/*
 * A connection uses a uv_poll_t and not a uv_stream_t, because we choose the events to watch. While
 * a response is pending we do not read, because a pipelining peer could fill our memory. We only
 * watch for the hang-up, so that we see at once when the peer closes; a uv_stream_t notices it only
 * when it reads.
 *
 * A peer that shuts down only its sending side (EPOLLRDHUP) still wants its answer. On a unix
 * socket the full close shows as EPOLLHUP. epoll always reports EPOLLHUP, but libuv requires at
 * least one event, so we watch UV_PRIORITIZED, which HTTP peers do not cause.
 *
 * No function here calls a handler while that handler is calling it: such calls wait for the next
 * turn of the loop.
 */
#include "lib/http/server/http-conn.h"

#include <assert.h>
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { OUT_BLOCK_SIZE = 16 << 10, OUT_IOV_MAX = 16 };

#define HEAD_TIMEOUT (10 * USEC_PER_SEC)
#define IDLE_TIMEOUT (60 * USEC_PER_SEC)
#define BODY_TIMEOUT (30 * USEC_PER_SEC)
#define WRITE_TIMEOUT (60 * USEC_PER_SEC)
#define LINGER_TIMEOUT (2 * USEC_PER_SEC)
#define HEARTBEAT (15 * USEC_PER_SEC)

static void http_conn_on_poll(uv_poll_t *h, int status, int events);
static void http_conn_on_timer(uv_timer_t *h);

/* -- life -- */

static void http_conn_unref(struct http_conn *c)
{
    struct http_server *s = c->server;

    if (--c->refs > 0)
        return;
    buf_done(&c->in);
    free(c);
    server_unref(s);
}

static void http_conn_on_closed(uv_handle_t *h)
{
    http_conn_unref(h->data);
}

void conn_new(struct http_server *s, int fd)
{
    struct http_conn *c = xnew0(struct http_conn);

    if (uv_poll_init(loop_uv(s->loop), &c->poll, fd) < 0) {
        fd_close(fd);
        free(c);
        return;
    }
    uv_timer_init(loop_uv(s->loop), &c->timer);
    c->poll.data = c->timer.data = c;
    c->refs = 2;
    c->fd = fd;
    c->server = s;
    c->in = (struct buf)BUF_INIT(HTTP_HEAD_MAX + CONN_READ_SIZE);
    s->refs++;
    s->n_conns++;
    c->next = s->conns;
    if (c->next)
        c->next->prev = c;
    s->conns = c;
    /* Most peers have already sent their request: reading now saves a turn of the loop. */
    http_conn_on_poll(&c->poll, 0, UV_READABLE);
}

static void http_conn_drop_output(struct http_conn *c)
{
    while (c->out) {
        struct http_out *o = c->out;

        c->out = o->next;
        free(o->mem);
        free(o);
    }
    c->out_tail = NULL;
    c->out_bytes = 0;
}

static void http_conn_close(struct http_conn *c)
{
    struct http_server *s = c->server;

    assert(c->state != CONN_CLOSED);
    c->state = CONN_CLOSED;
    *(c->prev ? &c->prev->next : &s->conns) = c->next;
    if (c->next)
        c->next->prev = c->prev;
    s->n_conns--;
    room_leave(c);
    http_conn_drop_output(c);
    uv_close((uv_handle_t *)&c->poll, http_conn_on_closed);
    uv_close((uv_handle_t *)&c->timer, http_conn_on_closed);
    c->fd = fd_close(c->fd);
}

void conn_gone(struct http_conn *c)
{
    struct http_req *r = TAKE_PTR(c->req);
    bool handled = c->state >= CONN_BUSY && c->state <= CONN_RAW;

    if (r)
        room_give_back(r);
    http_conn_close(c);
    if (!r)
        return;
    r->conn = NULL;
    if (handled && !r->on_gone)
        return; /* the handler will still answer, which ends the connection */
    if (handled)
        r->on_gone(r);
    req_free(r);
}

/* Shuts down our side, so that the peer sees the end, and goes on reading for a moment: closing
 * with unread bytes would reset the connection, and the peer could lose the response. */
static void http_conn_linger(struct http_conn *c)
{
    shutdown(c->fd, SHUT_WR);
    if (c->eof) {
        http_conn_close(c);
        return;
    }
    buf_done(&c->in);
    c->state = CONN_LINGER;
}

void conn_finish(struct http_conn *c)
{
    c->req = NULL;
    c->drain_due = false;
    if (c->broken || c->out_bytes)
        c->state = CONN_FLUSH;
    else if (c->close_after)
        http_conn_linger(c);
    else
        c->state = CONN_HEAD;
    conn_update(c);
}

/* -- waiting -- */

/* Whether the handler is reading a streamed body. */
static bool http_conn_streams_body(const struct http_conn *c)
{
    return c->state == CONN_BUSY && c->body_open && c->body_reading;
}

/* Bytes in c->in go first: those that came with the head of an upgrade, and the next pipelined
 * request. */
static bool http_conn_wants_bytes(const struct http_conn *c)
{
    if (c->eof)
        return false;
    if (http_conn_streams_body(c))
        return c->in.len == 0;
    if (c->state == CONN_RAW)
        return c->raw_reading && c->in.len == 0;
    if (c->state == CONN_HEAD || c->state == CONN_BODY)
        return !c->more || c->in.len == 0;
    return c->state == CONN_LINGER;
}

static int http_conn_wanted_events(const struct http_conn *c)
{
    int events = 0;

    if (http_conn_wants_bytes(c))
        events |= UV_READABLE;
    else if (!c->eof && !c->half_closed)
        events |= UV_DISCONNECT;
    if (c->out_bytes)
        events |= UV_WRITABLE;
    /* Both sides are shut down and the reader pauses: epoll would report the hang-up again and
     * again. */
    if (!events && c->write_shut)
        return 0;
    return events ? events : UV_PRIORITIZED;
}

/*
 * An upgraded connection has no write timeout: its peer may be a pager. http_stream_pending() stops
 * the producer, so a stall costs one bounded buffer.
 */
static enum conn_wait http_conn_wanted_wait(const struct http_conn *c)
{
    if (c->state == CONN_LINGER)
        return WAIT_LINGER;
    if (c->out_bytes && c->state != CONN_RAW)
        return WAIT_WRITE;
    if (c->state == CONN_QUEUED)
        return WAIT_ROOM;
    if (c->state == CONN_BODY || http_conn_streams_body(c))
        return WAIT_BODY;
    if (c->state == CONN_HEAD)
        return c->in.len || !c->served ? WAIT_HEAD : WAIT_IDLE;
    return c->state == CONN_STREAM && c->req->events ? WAIT_SILENCE : WAIT_NONE;
}

static uint64_t http_conn_wait_usec(const struct http_conn *c)
{
    const struct http_server_config *config = &c->server->config;

    switch (c->wait) {
    case WAIT_HEAD:
        return config->head_timeout ? config->head_timeout : HEAD_TIMEOUT;
    case WAIT_IDLE:
        return config->idle_timeout ? config->idle_timeout : IDLE_TIMEOUT;
    case WAIT_ROOM:
    case WAIT_BODY:
        return config->stall_timeout ? config->stall_timeout : BODY_TIMEOUT;
    case WAIT_WRITE:
        return config->stall_timeout ? config->stall_timeout : WRITE_TIMEOUT;
    case WAIT_SILENCE:
        return config->heartbeat ? config->heartbeat : HEARTBEAT;
    case WAIT_LINGER:
        return LINGER_TIMEOUT;
    case WAIT_NONE:
        break;
    }
    return 0;
}

/* Restarts the timer: bytes have moved, or the wait has changed. */
static void http_conn_restart_timer(struct http_conn *c)
{
    if (c->wait == WAIT_NONE)
        uv_timer_stop(&c->timer);
    else
        uv_timer_start(&c->timer, http_conn_on_timer, http_conn_wait_usec(c) / USEC_PER_MSEC + 1,
                       0);
}

static void http_conn_on_deferred(void *arg);

static bool http_conn_has_deferred_work(const struct http_conn *c)
{
    if (c->broken || c->drain_due)
        return true;
    if (c->state == CONN_RAW && c->raw_ended && !c->write_shut && c->out_bytes == 0)
        return true;
    if (http_conn_streams_body(c))
        return c->in.len > 0 || (!c->req->head.chunked && c->body_left == 0);
    if (c->in.len == 0)
        return false;
    return ((c->state == CONN_HEAD || c->state == CONN_BODY) && c->more) ||
           (c->state == CONN_RAW && c->raw_reading);
}

void conn_update(struct http_conn *c)
{
    int events;
    enum conn_wait wait;

    if (c->state == CONN_CLOSED)
        return;
    events = http_conn_wanted_events(c);
    if (events != c->events) {
        c->events = events;
        if (events)
            uv_poll_start(&c->poll, events, http_conn_on_poll);
        else
            uv_poll_stop(&c->poll);
    }
    wait = GUARD("time limits") ? http_conn_wanted_wait(c) : WAIT_NONE;
    if (wait != c->wait) {
        c->wait = wait;
        http_conn_restart_timer(c);
    }
    if (http_conn_has_deferred_work(c) && !c->deferred) {
        c->deferred = true;
        c->refs++;
        loop_defer(c->server->loop, http_conn_on_deferred, c);
    }
    if (c->state == CONN_HEAD && c->in.len == 0)
        buf_done(&c->in); /* an idle connection holds no buffer */
}

static void http_conn_refuse_late(struct http_conn *c, const char *what)
{
    _cleanup_err_ struct err err = ERR_INIT;

    err_set(&err, ERR_TIMEOUT, "%s did not arrive in time", what);
    conn_refuse_body(c, 408, &err);
}

static void http_conn_refuse_crowd(struct http_conn *c)
{
    _cleanup_err_ struct err err = ERR_INIT;

    err_set(&err, ERR_LIMIT, "too many large requests are being received");
    err_hint(&err, "Try again when other requests have ended.");
    room_leave(c);
    conn_refuse_body(c, 429, &err);
}

/* Streams write whole events, so a comment fits between any two writes. */
static void http_conn_beat(struct http_conn *c)
{
    static const char comment[] = ":\n\n";

    if (c->req->silent)
        http_stream_write(c->req, comment, sizeof(comment) - 1);
    c->req->silent = true;
    http_conn_restart_timer(c);
}

static void http_conn_on_timer(uv_timer_t *h)
{
    struct http_conn *c = h->data;

    switch (c->wait) {
    case WAIT_HEAD:
        if (c->in.len)
            http_conn_refuse_late(c, "the request head");
        else
            http_conn_close(c);
        break;
    case WAIT_ROOM:
        http_conn_refuse_crowd(c);
        break;
    case WAIT_BODY:
        http_conn_refuse_late(c, "the request body");
        break;
    case WAIT_SILENCE:
        http_conn_beat(c);
        break;
    case WAIT_IDLE:
    case WAIT_WRITE:
    case WAIT_LINGER:
        conn_gone(c);
        break;
    case WAIT_NONE:
        break;
    }
    conn_update(c);
}

/* -- out -- */

static void http_conn_push_block(struct http_conn *c, char *mem, size_t off, size_t len, size_t cap)
{
    struct http_out *o = xmalloc(sizeof(*o));

    *o = (struct http_out){.mem = mem, .off = off, .len = len, .cap = cap};
    *(c->out_tail ? &c->out_tail->next : &c->out) = o;
    c->out_tail = o;
    c->out_bytes += len - off;
}

static void http_conn_queue_copy(struct http_conn *c, const char *data, size_t len)
{
    struct http_out *last = c->out_tail;
    size_t cap = MAX(len, (size_t)OUT_BLOCK_SIZE);
    char *mem;

    if (last && last->cap - last->len >= len) {
        memcpy(last->mem + last->len, data, len);
        last->len += len;
        c->out_bytes += len;
        return;
    }
    mem = xmalloc(cap);
    memcpy(mem, data, len);
    http_conn_push_block(c, mem, 0, len, cap);
}

/* The number of bytes that the kernel took. 0: its buffer is full, or the connection is broken. */
static size_t http_conn_send_some(struct http_conn *c, const struct iovec *iov, int n)
{
    struct msghdr msg = {.msg_iov = (struct iovec *)iov, .msg_iovlen = (size_t)n};
    ssize_t sent;

    do
        sent = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
    while (sent < 0 && errno == EINTR);
    if (sent < 0 && errno != EAGAIN) {
        c->broken = true;
        http_conn_drop_output(c);
    }
    return sent < 0 ? 0 : (size_t)sent;
}

/* Whether more output may be queued. A writer that ignores http_stream_pending() is cut off. */
static bool http_conn_may_write(struct http_conn *c)
{
    if (c->out_bytes > CONN_OUT_MAX) {
        c->broken = true;
        http_conn_drop_output(c);
    }
    return !c->broken;
}

static void http_conn_note_written(struct http_conn *c)
{
    c->drain_due = c->out_bytes == 0 && !c->broken && c->req && c->req->on_drain;
}

void conn_write(struct http_conn *c, const struct iovec *iov, int n)
{
    size_t sent;

    if (!http_conn_may_write(c))
        return;
    sent = c->out || n == 0 ? 0 : http_conn_send_some(c, iov, n);
    for (int i = 0; i < n && !c->broken; i++) {
        size_t skip = MIN(sent, iov[i].iov_len);

        sent -= skip;
        if (skip < iov[i].iov_len)
            http_conn_queue_copy(c, (const char *)iov[i].iov_base + skip, iov[i].iov_len - skip);
    }
    http_conn_note_written(c);
}

void conn_write_take(struct http_conn *c, char *owned, size_t len)
{
    struct iovec iov = {owned, len};
    size_t sent = 0;

    if (http_conn_may_write(c) && !c->out)
        sent = http_conn_send_some(c, &iov, 1);
    if (c->broken || sent == len)
        free(owned);
    else
        http_conn_push_block(c, owned, sent, len, len);
    http_conn_note_written(c);
}

static void http_conn_consume_output(struct http_conn *c, size_t n)
{
    c->out_bytes -= n;
    while (c->out && n >= c->out->len - c->out->off) {
        struct http_out *o = c->out;

        n -= o->len - o->off;
        c->out = o->next;
        if (!c->out)
            c->out_tail = NULL;
        free(o->mem);
        free(o);
    }
    if (c->out)
        c->out->off += n;
}

static void http_conn_on_drained(struct http_conn *c)
{
    struct http_req *r = c->req;

    if (c->state == CONN_FLUSH && c->close_after)
        http_conn_linger(c);
    else if (c->state == CONN_FLUSH)
        c->state = CONN_HEAD;
    else if ((c->state == CONN_STREAM || c->state == CONN_RAW) && r->on_drain)
        r->on_drain(r);
}

static void http_conn_flush_output(struct http_conn *c)
{
    struct iovec iov[OUT_IOV_MAX];
    int n = 0;
    size_t sent;

    for (struct http_out *o = c->out; o && n < OUT_IOV_MAX; o = o->next)
        iov[n++] = (struct iovec){o->mem + o->off, o->len - o->off};
    if (n == 0)
        return;
    sent = http_conn_send_some(c, iov, n);
    if (sent == 0)
        return;
    http_conn_consume_output(c, sent);
    http_conn_restart_timer(c);
    if (c->out_bytes == 0)
        http_conn_on_drained(c);
}

/* -- in -- */

enum http_peer { PEER_OPEN, PEER_SENT_ALL, PEER_GONE };

static enum http_peer http_conn_look_at_peer(const struct http_conn *c)
{
    struct pollfd p = {.fd = c->fd, .events = POLLRDHUP | POLLPRI};

    if (poll(&p, 1, 0) <= 0)
        return PEER_OPEN;
    /* When our side is shut down, the kernel reports the end of the peer as a full hang-up. */
    if (c->write_shut && !(p.revents & (POLLERR | POLLNVAL | POLLPRI)))
        return PEER_SENT_ALL;
    /* HTTP has no urgent data. While it is unread, epoll would wake us all the time. */
    if (p.revents & (POLLHUP | POLLERR | POLLNVAL | POLLPRI))
        return PEER_GONE;
    return p.revents & POLLRDHUP ? PEER_SENT_ALL : PEER_OPEN;
}

static void http_conn_refuse_cut(struct http_conn *c)
{
    _cleanup_err_ struct err err = ERR_INIT;

    err_set(&err, ERR_INVALID, "the request ended before it was complete");
    conn_refuse_body(c, 400, &err);
}

static void http_conn_on_eof(struct http_conn *c)
{
    bool gone = http_conn_look_at_peer(c) == PEER_GONE;

    c->eof = true;
    if (c->state == CONN_RAW && !gone && c->req->raw.on_eof)
        c->req->raw.on_eof(c->req);
    else if ((c->state == CONN_BODY || http_conn_streams_body(c)) && !gone)
        http_conn_refuse_cut(c);
    else if (c->state == CONN_HEAD && c->in.len && !gone)
        http_conn_refuse_cut(c);
    else
        conn_gone(c);
}

static void http_conn_on_bytes(struct http_conn *c, const char *data, size_t len)
{
    int r;

    if (c->state == CONN_RAW) {
        c->req->raw.on_data(c->req, data, len);
        return;
    }
    if (c->state == CONN_LINGER) {
        c->discarded += len;
        if (c->discarded > CONN_LINGER_MAX)
            http_conn_close(c);
        return;
    }
    if (c->state == CONN_BODY || c->state == CONN_BUSY)
        http_conn_restart_timer(c);
    r = buf_append(&c->in, data, len);
    assert(r == 0); /* oversized heads are refused, and bodies are consumed at once */
    (void)r;
    if (c->state == CONN_BUSY)
        conn_body(c);
    else
        conn_input(c);
}

static void http_conn_read_input(struct http_conn *c)
{
    struct http_server *s = c->server;
    bool raw = c->state == CONN_RAW;
    ssize_t n;

    do
        n = recv(c->fd, s->scratch, sizeof(s->scratch), MSG_DONTWAIT);
    while (n < 0 && errno == EINTR);
    if (n > 0) {
        http_conn_on_bytes(c, s->scratch, (size_t)n);
        if (!raw) /* requests carry credentials; streams are large, and journals hold them anyway */
            explicit_bzero(s->scratch, (size_t)n);
    } else if (n == 0) {
        http_conn_on_eof(c);
    } else if (errno != EAGAIN) {
        conn_gone(c);
    }
}

static void http_conn_on_hangup(struct http_conn *c)
{
    enum http_peer peer = http_conn_look_at_peer(c);

    if (peer == PEER_GONE)
        conn_gone(c);
    else if (peer == PEER_SENT_ALL)
        c->half_closed = true;
}

static void http_conn_on_poll(uv_poll_t *h, int status, int events)
{
    struct http_conn *c = h->data;

    if (status < 0) {
        /* libuv has stopped watching; the calls below return the error */
        c->events = 0;
        events = UV_READABLE | UV_DISCONNECT;
    }
    if (events & UV_WRITABLE)
        http_conn_flush_output(c);
    if (c->state == CONN_CLOSED || c->broken) {
        conn_update(c);
        return;
    }
    if (!(events & (UV_READABLE | UV_DISCONNECT | UV_PRIORITIZED)))
        ;
    else if (http_conn_wants_bytes(c))
        http_conn_read_input(c);
    else
        http_conn_on_hangup(c);
    conn_update(c);
}

static void http_conn_run_deferred(struct http_conn *c)
{
    bool drained = c->drain_due && c->out_bytes == 0;

    c->drain_due = false;
    if (c->broken) {
        conn_gone(c);
        return;
    }
    if (drained)
        http_conn_on_drained(c);
    if (http_conn_streams_body(c))
        conn_body(c);
    if (c->state == CONN_RAW && c->raw_ended && !c->write_shut && !c->out_bytes) {
        c->write_shut = true;
        shutdown(c->fd, SHUT_WR);
    }
    if (c->in.len == 0)
        return;
    if ((c->state == CONN_HEAD || c->state == CONN_BODY) && c->more) {
        conn_input(c);
    } else if (c->state == CONN_RAW && c->raw_reading && !c->broken) {
        /* Bytes after the head of an upgrade request are raw. */
        struct buf early = c->in;

        c->in = (struct buf)BUF_INIT(early.max);
        c->req->raw.on_data(c->req, buf_data(&early), early.len);
        buf_done(&early);
    }
}

static void http_conn_on_deferred(void *arg)
{
    struct http_conn *c = arg;

    c->deferred = false;
    if (c->state != CONN_CLOSED)
        http_conn_run_deferred(c);
    conn_update(c);
    http_conn_unref(c);
}

/*
 * Turns bytes into requests, one at a time. The next head is parsed when the kernel has the last
 * response. Each pipelined request gets a turn of the loop, so a peer that sends a thousand
 * requests at once does not delay the other peers.
 */
#include "lib/http/server/http-conn.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/xalloc.h"

void req_free(struct http_req *r)
{
    if (!r)
        return;
    http_req_drop_body(r);
    if (r->head_mem)
        explicit_bzero(r->head_mem, r->head_len);
    free(r->head_mem);
    free(r->target_mem);
    free(r);
}

const struct http_head *http_req_head(const struct http_req *r)
{
    return &r->head;
}

bool http_req_is_local(const struct http_req *r)
{
    return r->conn && !r->conn->server->config.any_peer;
}

const char *http_req_path(const struct http_req *r)
{
    return r->path;
}

const char *http_req_query(const struct http_req *r)
{
    return r->query;
}

const char *http_req_body(const struct http_req *r, size_t *len)
{
    if (len)
        *len = r->body.len;
    return buf_data(&r->body);
}

/* Bodies carry credentials, and so do heads. */
void http_req_drop_body(struct http_req *r)
{
    buf_wipe(&r->body);
    room_give_back(r);
}

void http_req_set_user(struct http_req *r, void *user)
{
    r->user = user;
}

void *http_req_user(const struct http_req *r)
{
    return r->user;
}

void http_req_on_gone(struct http_req *r, http_gone_fn fn)
{
    r->on_gone = fn;
}

static void http_request_dispatch(struct http_conn *c)
{
    struct http_server_config *config = &c->server->config;

    c->state = CONN_BUSY;
    c->more = true;
    config->on_request(config->arg, c->req);
}

static void http_request_refuse_body(struct http_conn *c)
{
    _cleanup_err_ struct err err = ERR_INIT;

    err_set(&err, ERR_LIMIT, "request body is larger than %zu bytes", c->server->config.body_max);
    conn_refuse(c, 413, &err);
}

static int http_request_parse_head(struct http_conn *c, size_t len, struct err *err)
{
    const struct http_server_config *config = &c->server->config;
    struct http_req *r = xnew0(struct http_req);
    int ret;

    c->req = r;
    r->conn = c;
    r->body = (struct buf)BUF_INIT(c->server->config.body_max);
    r->head_mem = xmemdup(buf_data(&c->in), len);
    r->head_len = len;
    explicit_bzero(buf_data(&c->in), len);
    buf_consume(&c->in, len);
    c->scanned = 0;
    c->served = true;
    ret = http_parse_request(r->head_mem, len, &r->head, err);
    if (ret < 0 || (config->raw_target && config->raw_target(config->arg, &r->head)))
        return ret;
    r->target_mem = xstrdup(r->head.target);
    return http_target_split(r->target_mem, &r->path, &r->query, err);
}

static void http_request_send_continue(struct http_conn *c)
{
    struct iovec go_on = {(char *)"HTTP/1.1 100 Continue\r\n\r\n", 25};

    if (c->req->head.expect_continue && c->in.len == 0)
        conn_write(c, &go_on, 1);
}

/* A declared length is allocated at once. The kernel gives memory only for the bytes that come, and
 * no outgrown copies of the body stay behind. */
void conn_begin_body(struct http_conn *c)
{
    if (!c->req->head.chunked)
        (void)!buf_reserve(&c->req->body, (size_t)c->body_left);
    c->state = CONN_BODY;
    http_request_send_continue(c);
}

static void http_request_start_body(struct http_conn *c)
{
    const struct http_server_config *config = &c->server->config;
    const struct http_head *h = &c->req->head;

    c->close_after = !h->keep_alive;
    c->chunked = (struct http_chunked)HTTP_CHUNKED_INIT;
    c->body_left = h->length;
    c->body_open = config->want_stream && config->want_stream(config->arg, h, c->req->path);
    c->body_reading = false;
    if (c->body_open) {
        http_request_dispatch(c);
        return;
    }
    if (h->length > config->body_max && GUARD("body size")) {
        http_request_refuse_body(c);
        return;
    }
    if (!h->chunked && h->length == 0) {
        http_request_dispatch(c);
        return;
    }
    if (room_take(c, h->chunked ? config->body_max : (size_t)h->length))
        conn_begin_body(c);
    else
        c->state = CONN_QUEUED;
}

static void http_request_take_head(struct http_conn *c)
{
    const struct http_server_config *config = &c->server->config;
    _cleanup_err_ struct err err = ERR_INIT;
    ssize_t n = http_head_find(buf_data(&c->in), c->in.len, &c->scanned, &err);
    int status;

    if (n == 0)
        return;
    if (n < 0 || http_request_parse_head(c, (size_t)n, &err) < 0) {
        /* Also after a malformed head: the peer may use another protocol. */
        conn_refuse(c, err.code == ERR_LIMIT ? 431 : 400, &err);
        return;
    }
    if (config->identify)
        config->identify(config->arg, c->req, c->req->id);
    status = config->admit ? config->admit(config->admit_arg, &c->req->head, &err) : 0;
    if (status)
        conn_refuse(c, status, &err);
    else
        http_request_start_body(c);
}

static void http_request_take_plain_body(struct http_conn *c)
{
    size_t n = (size_t)MIN(c->body_left, (uint64_t)c->in.len);

    if (buf_append(&c->req->body, buf_data(&c->in), n) < 0) {
        http_request_refuse_body(c);
        return;
    }
    explicit_bzero(buf_data(&c->in), n);
    buf_consume(&c->in, n);
    c->body_left -= n;
    if (c->body_left == 0)
        http_request_dispatch(c);
}

static void http_request_take_chunked_body(struct http_conn *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    size_t used, off, n;

    do {
        if (http_chunked_decode(&c->chunked, buf_data(&c->in), c->in.len, &used, &off, &n, &err) <
            0) {
            conn_refuse(c, 400, &err);
            return;
        }
        if (buf_append(&c->req->body, buf_data(&c->in) + off, n) < 0) {
            http_request_refuse_body(c);
            return;
        }
        explicit_bzero(buf_data(&c->in), used);
        buf_consume(&c->in, used);
    } while (used > 0 && !c->chunked.done);
    if (c->chunked.done)
        http_request_dispatch(c);
}

/* -- streamed bodies -- */

void http_body_start(struct http_req *r, const struct http_body_events *events)
{
    r->body_events = *events;
    if (!r->conn)
        return;
    http_request_send_continue(r->conn);
    http_body_read(r, true);
}

void http_body_read(struct http_req *r, bool on)
{
    if (!r->conn)
        return;
    r->conn->body_reading = on;
    conn_update(r->conn);
}

void conn_refuse_body(struct http_conn *c, int status, const struct err *err)
{
    char id[HTTP_ID_SIZE] = "";
    struct http_req *r;

    if (c->req)
        memcpy(id, c->req->id, sizeof(id));
    r = c->state == CONN_BUSY ? TAKE_PTR(c->req) : NULL;
    c->body_open = false;
    if (r)
        r->conn = NULL;
    if (r && r->on_gone) {
        r->on_gone(r);
        req_free(r);
    }
    conn_refuse_as(c, id, status, err);
}

/* Takes one piece from `in`: *off and *len are its bytes, *used is what was consumed. */
static int http_request_next_piece(struct http_conn *c, const struct buf *in, size_t *used,
                                   size_t *off, size_t *len, struct err *err)
{
    if (c->req->head.chunked)
        return http_chunked_decode(&c->chunked, buf_data(in), in->len, used, off, len, err);
    *off = 0;
    *used = *len = (size_t)MIN(c->body_left, (uint64_t)in->len);
    c->body_left -= *len;
    return 0;
}

static bool http_request_body_is_complete(const struct http_conn *c)
{
    return c->req->head.chunked ? c->chunked.done : c->body_left == 0;
}

static bool http_request_body_goes_on(const struct http_conn *c, const struct http_req *r)
{
    return c->req == r && c->body_open && c->body_reading;
}

/*
 * The handler may pause, answer, or lose its peer in any call. During the callback the received
 * bytes do not belong to the connection, because an answer would free them while the handler reads
 * them.
 */
void conn_body(struct http_conn *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_buf_ struct buf in = c->in;
    struct http_req *r = c->req;
    size_t used, off, len;
    int ret = 0;

    c->in = (struct buf)BUF_INIT(in.max);
    while (http_request_body_goes_on(c, r) && in.len && !http_request_body_is_complete(c)) {
        ret = http_request_next_piece(c, &in, &used, &off, &len, &err);
        if (ret < 0)
            break;
        if (len)
            r->body_events.on_data(r, buf_data(&in) + off, len);
        buf_consume(&in, used);
    }
    if (c->req != r || !c->body_open)
        return; /* answered: the rest is dropped with the connection */
    c->in = in;
    in = (struct buf)BUF_INIT(0);
    if (ret < 0) {
        conn_refuse_body(c, 400, &err);
    } else if (http_request_body_goes_on(c, r) && http_request_body_is_complete(c)) {
        c->body_open = false;
        r->body_events.on_end(r);
    }
}

void conn_input(struct http_conn *c)
{
    c->more = false;
    if (c->state == CONN_HEAD)
        http_request_take_head(c);
    if (c->state != CONN_BODY || c->in.len == 0)
        return;
    if (c->req->head.chunked)
        http_request_take_chunked_body(c);
    else
        http_request_take_plain_body(c);
}

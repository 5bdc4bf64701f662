/*
 * Turns responses into bytes. A small response is sent at once with one sendmsg(), without a turn
 * of the loop.
 */
#include "lib/http/server/http-conn.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/text.h"

enum { RESPONSE_HEAD_MAX = HTTP_HEAD_MAX + (8 << 10), ERROR_BODY_MAX = 64 << 10 };

/* RFC 9110, 15.5.2: a 401 names the scheme to use. */
#define HOW_TO_AUTHENTICATE "WWW-Authenticate: Bearer realm=\"ripcord\"\r\n"

static bool http_response_has_no_body(const struct http_req *r, int status)
{
    return STREQ(r->head.method, "HEAD") || status == 204 || status == 304;
}

/* id: of the request; "" without one. */
static int http_response_append_head(struct buf *b, const char *id, const struct http_answer *a,
                                     bool close)
{
    const char *reason = a->reason ? a->reason : http_status_text(a->status);

    if (*id)
        log_debug("request %s: status %d", id, a->status);
    if (buf_appendf(b, "HTTP/1.1 %d %s\r\n", a->status, reason) < 0 ||
        (*id && buf_appendf(b, "X-Request-Id: %s\r\n", id) < 0) ||
        (a->content_type && buf_appendf(b, "Content-Type: %s\r\n", a->content_type) < 0) ||
        (a->extra && buf_append_str(b, a->extra) < 0) ||
        (close && buf_append_str(b, "Connection: close\r\n") < 0))
        return -ERR_LIMIT;
    return 0;
}

/* The objects of the request, and its wrong part. */
static int http_response_append_details(struct buf *b, const char *objects, const struct err *err)
{
    if (!objects && !err->part)
        return 0;
    if (buf_appendf(b, ",\"details\":{%s", objects ? objects : "") < 0)
        return -ERR_LIMIT;
    if (err->part && (buf_appendf(b, "%s\"%s\":\"", objects ? "," : "", err->part) < 0 ||
                      text_escape_json(b, err->part_name) < 0 || buf_append_str(b, "\"") < 0))
        return -ERR_LIMIT;
    return buf_append_str(b, "}");
}

static int http_response_append_error_json(struct buf *b, const char *objects,
                                           const struct err *err)
{
    if (buf_appendf(b, "{\"error\":{\"code\":\"%s\",\"message\":\"", err_code_name(err->code)) <
            0 ||
        text_escape_json(b, err->msg ? err->msg : "") < 0 ||
        (err->hint && buf_append_str(b, "\",\"hint\":\"") < 0) ||
        (err->hint && text_escape_json(b, err->hint) < 0) || buf_append_str(b, "\"") < 0 ||
        http_response_append_details(b, objects, err) < 0)
        return -ERR_LIMIT;
    return buf_append_str(b, "}}");
}

/* A message that is too long is replaced, not cut: a cut JSON string is invalid. */
static void http_response_error_body(struct buf *b, const char *objects, const struct err *err)
{
    struct err plain = {.code = err->code, .msg = (char *)"(message too long to show)"};

    buf_clear(b);
    if (http_response_append_error_json(b, objects, err) >= 0)
        return;
    buf_clear(b);
    (void)!http_response_append_error_json(b, NULL, &plain);
}

int response_error(struct buf *b, const char *id, int status, const struct err *err)
{
    _cleanup_buf_ struct buf body = BUF_INIT(ERROR_BODY_MAX);
    int r;

    http_response_error_body(&body, NULL, err);
    r = http_response_append_head(
        b, id,
        &(struct http_answer){.status = status,
                              .content_type = "application/json",
                              .extra = status == 401 ? HOW_TO_AUTHENTICATE : NULL},
        true);
    if (r < 0)
        return r;
    r = buf_appendf(b, "Content-Length: %zu\r\n\r\n", body.len);
    if (r < 0)
        return r;
    return buf_append(b, buf_data(&body), body.len);
}

void conn_refuse_as(struct http_conn *c, const char *id, int status, const struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(RESPONSE_HEAD_MAX + ERROR_BODY_MAX);
    const struct http_server_config *config = &c->server->config;
    char name[HTTP_ID_SIZE];

    snprintf(name, sizeof(name), "%s", id);
    if (!*name && config->identify)
        config->identify(config->arg, NULL, name);
    if (*name)
        log_debug("request %s: refused: %s", name, err->msg);
    req_free(TAKE_PTR(c->req));
    c->close_after = true;
    if (response_error(&b, name, status, err) >= 0)
        conn_write(c, &(struct iovec){buf_data(&b), b.len}, 1);
    conn_finish(c);
}

void conn_refuse(struct http_conn *c, int status, const struct err *err)
{
    conn_refuse_as(c, c->req ? c->req->id : "", status, err);
}

/* The response is complete: frees the request; the connection goes on. */
static void http_response_end_request(struct http_req *r)
{
    struct http_conn *c = r->conn;

    if (c)
        conn_finish(c);
    req_free(r);
}

/* When the response begins before the end of a streamed body, the rest of the body is not read, and
 * the connection closes after the response. */
static struct http_conn *http_response_begin_response(struct http_req *r)
{
    struct http_conn *c = r->conn;

    if (c && c->body_open) {
        c->body_open = false;
        c->close_after = true;
    }
    return c;
}

/* False: it cannot be sent, because the peer has gone or the head is too large. */
static bool http_response_reply_head(struct http_req *r, const struct http_answer *a, uint64_t len,
                                     struct buf *head)
{
    struct http_conn *c = http_response_begin_response(r);

    return c && http_response_append_head(head, r->id, a, c->close_after) >= 0 &&
           (a->status == 204 || a->status == 304 ||
            buf_appendf(head, "Content-Length: %llu\r\n", (unsigned long long)len) >= 0) &&
           buf_append_str(head, "\r\n") >= 0;
}

void http_reply_with(struct http_req *r, const struct http_answer *a, const void *body, size_t len)
{
    _cleanup_buf_ struct buf head = BUF_INIT(RESPONSE_HEAD_MAX);
    struct iovec iov[2];

    if (http_response_reply_head(r, a, len, &head)) {
        iov[0] = (struct iovec){buf_data(&head), head.len};
        iov[1] = (struct iovec){(void *)body, len};
        conn_write(r->conn, iov, len && !http_response_has_no_body(r, a->status) ? 2 : 1);
    }
    http_response_end_request(r);
}

void http_reply_take(struct http_req *r, const struct http_answer *a, char *owned, size_t len)
{
    _cleanup_buf_ struct buf head = BUF_INIT(RESPONSE_HEAD_MAX);
    bool sent = http_response_reply_head(r, a, len, &head);

    if (sent)
        conn_write(r->conn, &(struct iovec){buf_data(&head), head.len}, 1);
    if (sent && len && !http_response_has_no_body(r, a->status))
        conn_write_take(r->conn, owned, len);
    else
        free(owned);
    http_response_end_request(r);
}

void http_reply(struct http_req *r, int status, const char *content_type, const void *body,
                size_t len)
{
    http_reply_with(r, &(struct http_answer){.status = status, .content_type = content_type}, body,
                    len);
}

void http_reply_err_status(struct http_req *r, int status, const char *extra, const struct err *err)
{
    const struct http_answer answer = {
        .status = status, .content_type = "application/json", .extra = extra};
    _cleanup_free_ char *objects =
        r->conn && r->conn->server->config.describe ? r->conn->server->config.describe(r) : NULL;
    _cleanup_buf_ struct buf body = BUF_INIT(ERROR_BODY_MAX);

    http_response_error_body(&body, objects, err);
    http_reply_with(r, &answer, buf_data(&body), body.len);
}

void http_reply_err(struct http_req *r, const char *extra, const struct err *err)
{
    http_reply_err_status(r, err_code_http(err->code), extra, err);
}

void http_stream_start(struct http_req *r, int status, const char *content_type,
                       http_drain_fn on_drain)
{
    http_stream_start_with(r, &(struct http_answer){.status = status, .content_type = content_type},
                           on_drain);
}

void http_stream_start_with(struct http_req *r, const struct http_answer *a, http_drain_fn on_drain)
{
    _cleanup_buf_ struct buf head = BUF_INIT(RESPONSE_HEAD_MAX);
    struct http_conn *c = http_response_begin_response(r);

    r->on_drain = on_drain;
    if (!c)
        return;
    c->state = CONN_STREAM;
    /* HTTP/1.0 has no chunks: the end of the connection is the end of the body. */
    r->chunked = r->head.minor == 1;
    r->no_body = http_response_has_no_body(r, a->status);
    r->events = r->silent = a->content_type && STREQ(a->content_type, "text/event-stream");
    if (http_response_append_head(&head, r->id, a, c->close_after) >= 0 &&
        buf_append_str(&head, r->chunked ? "Transfer-Encoding: chunked\r\n\r\n" : "\r\n") >= 0)
        conn_write(c, &(struct iovec){buf_data(&head), head.len}, 1);
    conn_update(c);
}

void http_stream_start_length(struct http_req *r, const struct http_answer *a, uint64_t length,
                              http_drain_fn on_drain)
{
    _cleanup_buf_ struct buf head = BUF_INIT(RESPONSE_HEAD_MAX);
    bool sent = http_response_reply_head(r, a, length, &head);

    r->on_drain = on_drain;
    if (!r->conn)
        return;
    r->conn->state = CONN_STREAM;
    r->chunked = false;
    r->no_body = http_response_has_no_body(r, a->status);
    if (sent)
        conn_write(r->conn, &(struct iovec){buf_data(&head), head.len}, 1);
    conn_update(r->conn);
}

void http_stream_write(struct http_req *r, const void *data, size_t len)
{
    char size[32];
    struct iovec iov[3] = {{size, 0}, {(void *)data, len}, {(char *)"\r\n", 2}};

    /* An empty chunk would end the body. */
    if (!r->conn || len == 0)
        return;
    r->silent = false;
    iov[0].iov_len = (size_t)snprintf(size, sizeof(size), "%zx\r\n", len);
    if (r->no_body)
        conn_write(r->conn, NULL, 0);
    else if (r->chunked)
        conn_write(r->conn, iov, 3);
    else
        conn_write(r->conn, iov + 1, 1);
    conn_update(r->conn);
}

size_t http_stream_pending(const struct http_req *r)
{
    return r->conn ? r->conn->out_bytes : 0;
}

void http_stream_end(struct http_req *r)
{
    if (r->conn && r->chunked && !r->no_body)
        conn_write(r->conn, &(struct iovec){(char *)"0\r\n\r\n", 5}, 1);
    http_response_end_request(r);
}

void http_stream_abort(struct http_req *r)
{
    if (r->conn)
        r->conn->close_after = true;
    http_response_end_request(r);
}

void http_upgrade(struct http_req *r, const char *protocol, const struct http_raw_events *events)
{
    http_upgrade_with(r, protocol, "", events);
}

void http_upgrade_with(struct http_req *r, const char *protocol, const char *extra,
                       const struct http_raw_events *events)
{
    _cleanup_buf_ struct buf head = BUF_INIT(RESPONSE_HEAD_MAX);
    const struct http_answer answer = {.status = 101, .extra = extra};
    struct http_conn *c = http_response_begin_response(r);

    r->raw = *events;
    r->on_drain = events->on_drain;
    if (!c)
        return;
    c->state = CONN_RAW;
    c->close_after = true;
    c->raw_reading = true;
    if (http_response_append_head(&head, r->id, &answer, false) >= 0 &&
        buf_appendf(&head, "Connection: Upgrade\r\nUpgrade: %s\r\n\r\n", protocol) >= 0)
        conn_write(c, &(struct iovec){buf_data(&head), head.len}, 1);
    conn_update(c);
}

void http_raw_read(struct http_req *r, bool on)
{
    if (!r->conn)
        return;
    r->conn->raw_reading = on;
    conn_update(r->conn);
}

void http_raw_write(struct http_req *r, const void *data, size_t len)
{
    if (!r->conn || len == 0)
        return;
    conn_write(r->conn, &(struct iovec){(void *)data, len}, 1);
    conn_update(r->conn);
}

void http_raw_take(struct http_req *r, char *owned, size_t len)
{
    if (!r->conn || len == 0) {
        free(owned);
        return;
    }
    conn_write_take(r->conn, owned, len);
    conn_update(r->conn);
}

void http_raw_end(struct http_req *r)
{
    if (!r->conn)
        return;
    r->conn->raw_ended = true;
    conn_update(r->conn);
}

void http_raw_close(struct http_req *r)
{
    http_response_end_request(r);
}

/*
 * One request: dial, send the head, pass the body on, read the head of the answer, pass its body
 * on. A side that is slow stops the reading from the other.
 */
#include "daemon/api/port-proxy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/socket.h>

#include "daemon/api/call.h"
#include "daemon/api/port-list.h"
#include "daemon/api/port-pool.h"
#include "daemon/api/port-tunnel.h"
#include "daemon/core/sandbox/copy-dial.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

enum {
    PROXY_PIECE = 64 << 10,
    PROXY_WAITING_MAX = 256 << 10, /* bytes that may wait for a slow side */
    PROXY_OUT_MAX = PROXY_WAITING_MAX + 2 * PROXY_PIECE + PORT_HEAD_MAX,
    PROXY_INTERIM_MAX = 16, /* answers 1xx before the final one */
    /* Of one sandbox at a time, with its WebSockets. The relay of a container has 64 jobs. */
    PROXY_SANDBOX_MAX = 48,
};

#define PROXY_ANSWER_TIME (120 * USEC_PER_SEC) /* without progress, until the head of the answer */
#define PROXY_WAKE_TIME (30 * USEC_PER_SEC)    /* until something listens */
#define PROXY_WAKE_STEP (250 * USEC_PER_MSEC)
#define PROXY_TIME_MAX (USEC_PER_SEC * 3600)

struct port_proxy {
    struct port_proxy *next;
    struct api *api;
    struct http_req *req; /* NULL: the client has disconnected, or the request is answered */
    struct port_route route;
    char *target; /* owned; route.target points into it */
    uint64_t patience;
    enum port_connection connection;
    bool reused;            /* the connection has carried other requests before */
    uint64_t wake_until;    /* time_mono() until which it waits for the service; 0: it does not */
    bool dialling, summing; /* a callback is to come, which frees it without a request */

    int fd; /* to the service; -1 without a connection */
    struct loop_watch *watch;
    struct loop_timer *timer;

    struct buf out;    /* for the service */
    bool body_stopped; /* the client's body is not read, because `out` is full */
    bool body_done;
    bool held; /* the head of the answer waits for the end of the client's body */
    bool deaf; /* the service reads no more: the rest of the body is dropped */

    struct buf in; /* the head of the answer */
    size_t scanned;
    unsigned interim;
    bool answering; /* the client has the head */
    bool chunked, until_end;
    struct http_chunked chunks;
    uint64_t left;
};

static struct port_proxy *proxies; /* all of them; on the loop's thread */
static char scratch[PROXY_PIECE];

static void port_proxy_close(struct port_proxy *p)
{
    loop_watch_free(TAKE_PTR(p->watch));
    p->fd = fd_close(p->fd);
    loop_timer_stop(p->timer);
}

static void port_proxy_free(struct port_proxy *p)
{
    struct port_proxy **at = &proxies;

    while (*at != p)
        at = &(*at)->next;
    *at = p->next;
    port_proxy_close(p);
    loop_timer_free(p->timer);
    buf_done(&p->out);
    buf_done(&p->in);
    free(p->target);
    free(p);
}

/* The request is over: also the rest, unless a callback is to come. */
static void port_proxy_drop(struct port_proxy *p)
{
    p->req = NULL;
    port_proxy_close(p);
    if (!p->dialling && !p->summing)
        port_proxy_free(p);
}

static void port_proxy_fail(struct port_proxy *p, struct err *err)
{
    struct http_req *req = p->req;

    err_wrap(err, "sandbox '%s'", p->route.name);
    if (p->answering)
        http_stream_abort(req);
    else
        http_reply_err(req, NULL, err);
    port_proxy_drop(p);
}

/* The service is to blame. */
static void port_proxy_fail_with(struct port_proxy *p, enum err_code code, const char *problem)
{
    _cleanup_err_ struct err err = ERR_INIT;

    err_set(&err, code, "port %u inside the sandbox %s", p->route.port, problem);
    port_proxy_fail(p, &err);
}

static void port_proxy_on_gone(struct http_req *req)
{
    port_proxy_drop(http_req_user(req));
}

static void port_proxy_touch(const struct port_proxy *p)
{
    manager_touch(api_settings(p->api)->manager, p->route.name);
}

static void port_proxy_update(struct port_proxy *p)
{
    bool reads = !p->held && (!p->answering || http_stream_pending(p->req) < PROXY_WAITING_MAX);

    if (p->watch)
        loop_watch_set(p->watch, (reads ? LOOP_READ : 0) | (p->out.len ? LOOP_WRITE : 0));
}

/* ---- the answer ---- */

/* The answer has come to the end that it has announced. */
static void port_proxy_keep(struct port_proxy *p)
{
    if (p->connection != PORT_KEEP || p->out.len || p->fd < 0)
        return;
    loop_watch_free(TAKE_PTR(p->watch));
    port_pool_give(p->api, p->route.name, p->route.port, TAKE_FD(p->fd));
}

static void port_proxy_finish(struct port_proxy *p)
{
    http_stream_end(p->req);
    port_proxy_keep(p);
    port_proxy_drop(p);
}

/* Passes on the bytes of a body. */
static void port_proxy_take_chunks(struct port_proxy *p, const char *data, size_t len)
{
    size_t used, off, n;

    while (len && !p->chunks.done) {
        if (http_chunked_decode(&p->chunks, data, len, &used, &off, &n, NULL) < 0) {
            port_proxy_fail_with(p, ERR_ENGINE, "sent a malformed chunk");
            return;
        }
        http_stream_write(p->req, data + off, n);
        data += used;
        len -= used;
    }
    if (!p->chunks.done)
        return;
    if (len)
        p->connection = PORT_CLOSE;
    port_proxy_finish(p);
}

/* Bytes behind the end of the answer are dropped with the connection. */
static void port_proxy_take_body(struct port_proxy *p, const char *data, size_t len)
{
    if (p->chunked) {
        port_proxy_take_chunks(p, data, len);
        return;
    }
    if (!p->until_end && len > p->left) {
        p->connection = PORT_CLOSE;
        len = (size_t)p->left;
    }
    p->left -= p->until_end ? 0 : len;
    http_stream_write(p->req, data, len);
    if (!p->until_end && !p->left)
        port_proxy_finish(p);
}

static void port_proxy_on_drain(struct http_req *req)
{
    port_proxy_update(http_req_user(req));
}

static bool port_proxy_has_no_body(const struct port_proxy *p, const struct http_head *answer)
{
    return answer->status == 204 || answer->status == 304 ||
           STREQ(http_req_head(p->req)->method, "HEAD");
}

/* The length of an answer to HEAD is that of the body which it does not have. */
static void port_proxy_answer_without_body(struct port_proxy *p, const struct http_head *head,
                                           const struct http_answer *a)
{
    struct http_req *req = p->req;

    if (head->status == 204 || head->status == 304) {
        http_reply_with(req, a, NULL, 0);
    } else {
        if (head->has_length)
            http_stream_start_length(req, a, head->length, NULL);
        else
            http_stream_start_with(req, a, NULL);
        http_stream_end(req);
    }
    port_proxy_drop(p);
}

static void port_proxy_switch(struct port_proxy *p, const struct http_head *head,
                              const char *fields, const char *early, size_t early_len);

/* `rest` are bytes behind the head. */
static void port_proxy_answer(struct port_proxy *p, const struct http_head *head, const char *rest,
                              size_t len)
{
    _cleanup_buf_ struct buf fields = BUF_INIT(PORT_HEAD_MAX);
    struct http_answer a = {.status = head->status, .reason = head->reason};

    if (port_answer_fields(&p->route, head, &fields) < 0) {
        port_proxy_fail_with(p, ERR_ENGINE, "sent a head that is too large");
        return;
    }
    a.extra = buf_data(&fields);
    if (head->status == 101) {
        port_proxy_switch(p, head, a.extra, rest, len);
        return;
    }
    if (port_proxy_has_no_body(p, head)) {
        port_proxy_answer_without_body(p, head, &a);
        return;
    }
    loop_timer_stop(p->timer);
    p->answering = true;
    p->chunked = head->chunked;
    p->until_end = !head->chunked && !head->has_length;
    if (p->connection == PORT_KEEP && !head->keep_alive)
        p->connection = PORT_CLOSE;
    p->left = head->length;
    if (head->has_length)
        http_stream_start_length(p->req, &a, head->length, port_proxy_on_drain);
    else
        http_stream_start_with(p->req, &a, port_proxy_on_drain);
    port_proxy_take_body(p, rest, len);
}

static void port_proxy_bad_head(struct port_proxy *p, struct err *err)
{
    err->code = ERR_ENGINE;
    err_wrap(err, "port %u inside the sandbox sent a bad answer", p->route.port);
    port_proxy_fail(p, err);
}

/*
 * One head of the answer in p->in. False: p waits for more, or is gone.
 *
 * The server ends the reading of a request when its answer begins. So an answer waits for the end
 * of the request, unless it is a refusal: that service reads no more.
 */
static bool port_proxy_take_head(struct port_proxy *p)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct http_head head = {.n_fields = 0};
    ssize_t n = http_head_find(buf_data(&p->in), p->in.len, &p->scanned, &err);
    _cleanup_free_ char *mem = NULL;
    bool final;

    if (n == 0)
        return false;
    mem = n > 0 ? xmemdup(buf_data(&p->in), (size_t)n) : NULL;
    if (n < 0 || http_parse_response(mem, (size_t)n, &head, &err) < 0) {
        port_proxy_bad_head(p, &err);
        return false;
    }
    final = head.status >= 200 || head.status == 101;
    p->held = final && !p->body_done && head.status < 400;
    if (p->held) {
        p->scanned = 0;
        return false;
    }
    if (final) {
        _cleanup_buf_ struct buf in = p->in;

        p->in = (struct buf)BUF_INIT(0);
        port_proxy_answer(p, &head, buf_data(&in) + n, in.len - (size_t)n);
        return false;
    }
    if (++p->interim > PROXY_INTERIM_MAX) {
        port_proxy_fail_with(p, ERR_ENGINE, "sent too many interim answers");
        return false;
    }
    buf_consume(&p->in, (size_t)n);
    p->scanned = 0;
    return p->in.len;
}

/* ---- upgrades ---- */

/* Only what the client asked for: otherwise a service could make a tunnel of any request. */
static bool port_proxy_may_switch(const struct port_proxy *p, const struct http_head *head)
{
    return p->connection == PORT_WEBSOCKET && head->upgrade &&
           strcasecmp(head->upgrade, "websocket") == 0 && !head->chunked && !head->has_length;
}

static void port_proxy_on_tunnel_end(void *arg)
{
    port_proxy_drop(arg);
}

static void port_proxy_switch(struct port_proxy *p, const struct http_head *head,
                              const char *fields, const char *early, size_t early_len)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct port_tunnel tunnel = {
        .sandbox = p->route.name,
        .req = p->req,
        .protocol = "websocket",
        .fields = fields,
        .early = early,
        .early_len = early_len,
        .on_end = port_proxy_on_tunnel_end,
        .arg = p,
    };

    if (!port_proxy_may_switch(p, head)) {
        port_proxy_fail_with(p, ERR_ENGINE, "switched the protocol without being asked");
        return;
    }
    tunnel.fd = TAKE_FD(p->fd);
    port_proxy_close(p);
    if (port_tunnel_open(p->api, &tunnel, &err) < 0)
        port_proxy_fail(p, &err);
}

/* ---- the connection to the service ---- */

static void port_proxy_dial(struct port_proxy *p);

/* A service may close a connection at the moment in which we use it again. Such a request has no
 * body and may be sent twice. */
static void port_proxy_send_again(struct port_proxy *p)
{
    port_proxy_close(p);
    buf_clear(&p->out);
    p->deaf = p->reused = false;
    p->connection = PORT_CLOSE;
    port_proxy_dial(p);
}

static void port_proxy_on_end(struct port_proxy *p)
{
    if (p->reused && !p->answering && !p->in.len && !p->interim)
        port_proxy_send_again(p);
    else if (!p->answering)
        port_proxy_fail_with(p, ERR_ENGINE, "closed the connection without an answer");
    else if (p->until_end)
        port_proxy_finish(p);
    else
        port_proxy_fail_with(p, ERR_ENGINE, "closed the connection within its answer");
}

/* Whether the request still has its proxy: that of an ended request is gone. */
static bool port_proxy_lives(const struct http_req *req)
{
    const struct port_proxy *p = proxies;

    while (p && p->req != req)
        p = p->next;
    return p;
}

/* The client's body has ended. False: p is gone. */
static bool port_proxy_take_held(struct port_proxy *p)
{
    const struct http_req *req = p->req;

    while (port_proxy_take_head(p))
        ;
    return port_proxy_lives(req);
}

static void port_proxy_read(struct port_proxy *p)
{
    ssize_t n = recv(p->fd, scratch, sizeof(scratch), MSG_DONTWAIT);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n <= 0) {
        port_proxy_on_end(p);
        return;
    }
    port_proxy_touch(p);
    if (p->answering) {
        port_proxy_take_body(p, scratch, (size_t)n);
        return;
    }
    if (buf_append(&p->in, scratch, (size_t)n) < 0) {
        port_proxy_fail_with(p, ERR_ENGINE, "sent a head that is too large");
        return;
    }
    while (port_proxy_take_head(p))
        ;
}

static void port_proxy_restart_timer(struct port_proxy *p)
{
    if (!p->answering)
        loop_timer_set(p->timer, p->patience, false);
}

static void port_proxy_write(struct port_proxy *p)
{
    ssize_t n = send(p->fd, buf_data(&p->out), p->out.len, MSG_NOSIGNAL | MSG_DONTWAIT);

    if (n > 0) {
        buf_consume(&p->out, (size_t)n);
        port_proxy_restart_timer(p);
    } else if (n < 0 && errno != EAGAIN && errno != EINTR) {
        p->deaf = true; /* it may have answered before */
        buf_clear(&p->out);
    }
    if (p->body_stopped && p->out.len < PROXY_WAITING_MAX) {
        p->body_stopped = false;
        http_body_read(p->req, true);
    }
}

static void port_proxy_on_ready(void *arg, int events)
{
    struct port_proxy *p = arg;
    struct http_req *req = p->req;

    if (events & LOOP_WRITE && p->out.len)
        port_proxy_write(p);
    if (!(events & LOOP_READ)) {
        port_proxy_update(p);
        return;
    }
    port_proxy_read(p);
    if (port_proxy_lives(req))
        port_proxy_update(p);
}

/* ---- the body of the request ---- */

static void port_proxy_queue(struct port_proxy *p, const char *data, size_t len)
{
    if (!p->deaf && buf_append(&p->out, data, len) < 0)
        p->deaf = true; /* cannot happen while the reading is stopped in time */
}

static void port_proxy_on_data(struct http_req *req, const char *data, size_t len)
{
    struct port_proxy *p = http_req_user(req);
    bool chunked = http_req_head(req)->chunked;
    char size[24];

    port_proxy_touch(p);
    if (chunked)
        port_proxy_queue(p, size, (size_t)snprintf(size, sizeof(size), "%zx\r\n", len));
    port_proxy_queue(p, data, len);
    if (chunked)
        port_proxy_queue(p, "\r\n", 2);
    if (p->out.len >= PROXY_WAITING_MAX) {
        p->body_stopped = true;
        http_body_read(req, false);
    }
    port_proxy_update(p);
}

static void port_proxy_on_body_end(struct http_req *req)
{
    struct port_proxy *p = http_req_user(req);

    p->body_done = true;
    if (http_req_head(req)->chunked)
        port_proxy_queue(p, "0\r\n\r\n", 5);
    if (p->held && !port_proxy_take_held(p))
        return;
    port_proxy_update(p);
}

static const struct http_body_events body_events = {port_proxy_on_data, port_proxy_on_body_end};

static bool port_proxy_has_body(const struct http_head *head)
{
    return head->chunked || head->length;
}

/* ---- dialling ---- */

/* Without a connection: the service of a sandbox that was woken may listen by now. */
static void port_proxy_on_timer(void *arg)
{
    struct port_proxy *p = arg;

    if (p->fd < 0)
        port_proxy_dial(p);
    else
        port_proxy_fail_with(p, ERR_TIMEOUT, "does not answer in time");
}

static void port_proxy_send(struct port_proxy *p)
{
    _cleanup_err_ struct err err = ERR_INIT;
    const struct http_head *head = http_req_head(p->req);

    p->watch = loop_watch_new(api_settings(p->api)->loop, p->fd, port_proxy_on_ready, p);
    if (!p->watch || port_request_head(&p->route, head, p->connection, &p->out) < 0) {
        err_set(&err, ERR_LIMIT,
                p->watch ? "the request's head is too large for the service"
                         : "cannot watch the connection");
        port_proxy_fail(p, &err);
        return;
    }
    if (!p->body_done)
        http_body_start(p->req, &body_events);
    port_proxy_restart_timer(p);
    port_proxy_update(p);
}

/* ports NULL: unknown. */
static void port_proxy_reply_closed(struct port_proxy *p, const char *ports)
{
    _cleanup_err_ struct err err = ERR_INIT;

    err_set(&err, ERR_ENGINE, "nothing listens on port %u inside the sandbox", p->route.port);
    if (ports && *ports)
        err_hint(&err, "Processes of the sandbox listen on: %s.", ports);
    else
        err_hint(&err, "Start the service in the sandbox, on 127.0.0.1 or 0.0.0.0.");
    port_proxy_fail(p, &err);
}

/* False: it does not wait, or not any more. */
static bool port_proxy_wait_for_service(struct port_proxy *p)
{
    uint64_t now = time_mono();

    if (!p->route.wake)
        return false;
    if (!p->wake_until)
        p->wake_until = now + MIN(PROXY_WAKE_TIME, p->patience);
    if (now >= p->wake_until)
        return false;
    loop_timer_set(p->timer, PROXY_WAKE_STEP, false);
    return true;
}

static void port_proxy_on_summary(void *arg, const char *ports)
{
    struct port_proxy *p = arg;

    p->summing = false;
    if (p->req)
        port_proxy_reply_closed(p, ports);
    else
        port_proxy_free(p);
}

static void port_proxy_dialled(void *arg, const struct err *err, const struct copy_result *result)
{
    struct port_proxy *p = arg;
    _cleanup_err_ struct err own = ERR_INIT;

    p->dialling = false;
    p->fd = result->fd;
    if (!p->req) {
        port_proxy_free(p);
    } else if (!err) {
        port_proxy_send(p);
    } else if (err->code == ERR_NOT_FOUND && port_proxy_wait_for_service(p)) {
        return;
    } else if (err->code == ERR_NOT_FOUND) {
        p->summing = port_summary(p->api, p->route.name, port_proxy_on_summary, p);
        if (!p->summing)
            port_proxy_reply_closed(p, NULL);
    } else {
        err_copy(&own, err);
        port_proxy_fail(p, &own);
    }
}

static void port_proxy_dial(struct port_proxy *p)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct http_req *req = p->req;

    if (p->connection == PORT_KEEP)
        p->fd = port_pool_take(p->api, p->route.name, p->route.port);
    p->reused = p->fd >= 0;
    if (p->reused) {
        port_proxy_send(p);
        return;
    }
    if (manager_dial(api_settings(p->api)->manager, p->route.name, p->route.port, p->route.wake,
                     port_proxy_dialled, p, &err) >= 0) {
        p->dialling = true;
        return;
    }
    http_reply_err(req, NULL, &err);
    port_proxy_drop(p);
}

static void port_proxy_recovered(void *arg)
{
    struct port_proxy *p = arg;

    p->dialling = false;
    if (p->req)
        port_proxy_dial(p);
    else
        port_proxy_free(p);
}

/* ---- start ---- */

bool port_proxy_wants(const struct http_head *head, struct port_route *ret)
{
    return port_route_parse(head->target, ret);
}

static int port_proxy_check_load(const struct port_route *route, struct err *err)
{
    unsigned n = 0;

    for (const struct port_proxy *p = proxies; p; p = p->next)
        n += STREQ(p->route.name, route->name);
    if (n < PROXY_SANDBOX_MAX)
        return 0;
    err_set(err, ERR_LIMIT, "sandbox '%s': too many requests to its ports (limit %d at a time)",
            route->name, PROXY_SANDBOX_MAX);
    return err_hint(err, "Try again when other requests and WebSockets have ended.");
}

/*
 * A WebSocket begins with a GET without a body. Other upgrades do not pass. Requests share
 * connections only if they may be sent twice, because the service may close one at the wrong
 * moment, and not those for a HEAD: some services send a body with it.
 */
static int port_proxy_connection(const struct http_head *head, enum port_connection *ret,
                                 struct err *err)
{
    bool bare_get = STREQ(head->method, "GET") && !port_proxy_has_body(head);

    *ret = bare_get ? PORT_KEEP : PORT_CLOSE;
    if (!head->upgrade || strcasecmp(head->upgrade, "websocket") != 0)
        return 0;
    if (!bare_get)
        return err_set(err, ERR_INVALID, "header 'Upgrade': a WebSocket needs GET without a body");
    *ret = PORT_WEBSOCKET;
    return 0;
}

static int port_proxy_patience(const struct http_head *head, uint64_t *ret, struct err *err)
{
    const char *text = http_field_get(head, "Ripcord-Timeout");
    uint64_t usec = PROXY_ANSWER_TIME;

    if (text && parse_duration(text, &usec, err) < 0)
        return err_wrap(err, "header 'Ripcord-Timeout'");
    if (usec < USEC_PER_SEC || usec > PROXY_TIME_MAX)
        return err_set(err, ERR_INVALID, "header 'Ripcord-Timeout': must be between 1s and 1h");
    *ret = usec;
    return 0;
}

/* In an origin, the link has said whether requests wake the sandbox. */
static int port_proxy_wake(const struct port_route *route, const struct http_head *head, bool *ret,
                           struct err *err)
{
    const char *text = http_field_get(head, "Ripcord-Wake");

    *ret = route->wake;
    if (route->place == PORT_IN_API && text && parse_bool(text, ret, err) < 0)
        return err_wrap(err, "header 'Ripcord-Wake'");
    return 0;
}

void port_proxy_start(struct api *a, struct http_req *req, const struct port_route *route)
{
    const struct http_head *head = http_req_head(req);
    struct manager *m = api_settings(a)->manager;
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t patience = 0;
    struct port_proxy *p;
    enum port_connection connection;
    bool wake;

    if (port_proxy_check_load(route, &err) < 0 ||
        port_proxy_connection(head, &connection, &err) < 0 ||
        port_proxy_wake(route, head, &wake, &err) < 0 ||
        port_proxy_patience(head, &patience, &err) < 0) {
        http_reply_err(req, NULL, &err);
        return;
    }
    p = xnew0(struct port_proxy);
    *p = (struct port_proxy){.next = proxies, .api = a, .req = req, .route = *route, .fd = -1};
    proxies = p;
    p->target = xstrdup(route->target);
    p->route.target = p->target;
    p->connection = connection;
    p->route.wake = wake;
    p->patience = patience;
    p->timer = loop_timer_new(api_settings(a)->loop, port_proxy_on_timer, p);
    p->in = (struct buf)BUF_INIT(HTTP_HEAD_MAX + PROXY_PIECE);
    p->out = (struct buf)BUF_INIT(PROXY_OUT_MAX);
    p->chunks = (struct http_chunked)HTTP_CHUNKED_INIT;
    http_req_set_user(req, p);
    http_req_on_gone(req, port_proxy_on_gone);
    p->body_done = !port_proxy_has_body(head);
    if (p->body_done) /* so that the connection can be kept */
        http_body_start(req, &body_events);
    p->dialling = !manager_is_recovered(m);
    if (p->dialling)
        manager_when_recovered(m, 0, port_proxy_recovered, p);
    else
        port_proxy_dial(p);
}

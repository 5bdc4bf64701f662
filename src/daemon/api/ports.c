/*
 * GET …/ports/{p} with `Upgrade: tcp`: a tunnel to a port inside the sandbox. The supervisor
 * connects inside the sandbox and passes the socket out, so no network is needed. After the 101,
 * bytes flow in both directions. Each direction has its own end and its own back-pressure.
 */
#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/api/call.h"
#include "daemon/core/sandbox/copy-dial.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

enum {
    TUNNEL_PIECE = 64 << 10,
    TUNNEL_OUT_MAX = 256 << 10, /* bytes that may wait for a slow client */
    TUNNEL_IN_MAX =
        256 << 10, /* bytes that may wait for a slow service: more than one piece of input */
};

struct tunnel {
    struct http_req *req; /* NULL: the client has disconnected */
    struct manager *manager;
    struct loop *loop;
    char *name; /* of the sandbox; owned */
    int fd;     /* to the service; -1 while the supervisor connects */
    struct loop_watch *watch;
    struct buf pending;  /* bytes that the service has not taken yet */
    bool client_ended;   /* the client sends no more */
    bool service_ended;  /* the service sends no more */
    bool service_closed; /* the service takes no more; it may still send */
};

static char scratch[TUNNEL_PIECE];

static void api_ports_tunnel_free(struct tunnel *t)
{
    loop_watch_free(t->watch);
    fd_close(t->fd);
    buf_done(&t->pending);
    free(t->name);
    free(t);
}

static void api_ports_finish(struct tunnel *t)
{
    http_raw_close(t->req);
    api_ports_tunnel_free(t);
}

static void api_ports_update(struct tunnel *t)
{
    bool reads = !t->service_ended && http_stream_pending(t->req) < TUNNEL_OUT_MAX;

    loop_watch_set(t->watch, (reads ? LOOP_READ : 0) | (t->pending.len ? LOOP_WRITE : 0));
}

/* Both directions have ended and nothing is pending. */
static bool api_ports_is_over(const struct tunnel *t)
{
    return t->service_ended && (t->service_closed || (t->client_ended && !t->pending.len));
}

/* ---- from the client to the service ---- */

static size_t api_ports_service_write(struct tunnel *t, const char *data, size_t len)
{
    ssize_t n;

    if (t->service_closed)
        return len;
    n = send(t->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0)
        return (size_t)n;
    if (errno == EAGAIN || errno == EINTR)
        return 0;
    t->service_closed = true;
    return len;
}

static void api_ports_flush_pending(struct tunnel *t)
{
    buf_consume(&t->pending, api_ports_service_write(t, buf_data(&t->pending), t->pending.len));
    if (t->pending.len)
        return;
    if (t->client_ended)
        shutdown(t->fd, SHUT_WR);
    else
        http_raw_read(t->req, true);
}

static void api_ports_on_data(struct http_req *req, const char *data, size_t len)
{
    struct tunnel *t = http_req_user(req);
    size_t taken = t->pending.len ? 0 : api_ports_service_write(t, data, len);

    manager_touch(t->manager, t->name);
    if (taken < len) {
        http_raw_read(req, false);
        if (buf_append(&t->pending, data + taken, len - taken) < 0)
            t->service_closed = true; /* cannot happen while the reading is paused */
    }
    if (api_ports_is_over(t))
        api_ports_finish(t);
    else
        api_ports_update(t);
}

static void api_ports_on_eof(struct http_req *req)
{
    struct tunnel *t = http_req_user(req);

    t->client_ended = true;
    if (!t->pending.len)
        shutdown(t->fd, SHUT_WR);
    if (api_ports_is_over(t))
        api_ports_finish(t);
}

/* ---- from the service to the client ---- */

/* False: the service has sent everything. */
static bool api_ports_read_service(struct tunnel *t)
{
    ssize_t n = recv(t->fd, scratch, sizeof(scratch), MSG_DONTWAIT);

    if (n > 0) {
        manager_touch(t->manager, t->name);
        http_raw_write(t->req, scratch, (size_t)n);
        return true;
    }
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return true;
    t->service_ended = true;
    t->service_closed |= n < 0;
    http_raw_end(t->req);
    return false;
}

static void api_ports_on_service(void *arg, int events)
{
    struct tunnel *t = arg;

    if (events & LOOP_WRITE && t->pending.len)
        api_ports_flush_pending(t);
    if (events & LOOP_READ && !t->service_ended)
        api_ports_read_service(t);
    if (api_ports_is_over(t))
        api_ports_finish(t);
    else
        api_ports_update(t);
}

static void api_ports_on_drain(struct http_req *req)
{
    struct tunnel *t = http_req_user(req);

    api_ports_update(t);
}

/* The last bytes of a client that closes at once are still offered to the service. */
static void api_ports_on_gone(struct http_req *req)
{
    struct tunnel *t = http_req_user(req);

    t->req = NULL;
    if (t->fd < 0)
        return; /* api_ports_dialled() frees it */
    if (t->pending.len)
        api_ports_service_write(t, buf_data(&t->pending), t->pending.len);
    api_ports_tunnel_free(t);
}

/* ---- start ---- */

static void api_ports_open_tunnel(struct tunnel *t, struct err *err)
{
    static const struct http_raw_events events = {api_ports_on_data, api_ports_on_eof,
                                                  api_ports_on_drain};

    t->watch = loop_watch_new(t->loop, t->fd, api_ports_on_service, t);
    if (!t->watch) {
        err_set(err, ERR_LIMIT, "cannot watch the connection");
        return;
    }
    http_upgrade(t->req, TUNNEL_PROTOCOL, &events);
    api_ports_update(t);
}

static void api_ports_dialled(void *arg, const struct err *err, const struct copy_result *result)
{
    _cleanup_err_ struct err own = ERR_INIT;
    struct tunnel *t = arg;

    t->fd = result->fd;
    if (!t->req) {
        api_ports_tunnel_free(t);
        return;
    }
    if (err)
        err_copy(&own, err);
    else
        api_ports_open_tunnel(t, &own);
    if (own.code) {
        http_reply_err(t->req, NULL, &own);
        api_ports_tunnel_free(t);
    }
}

void handle_port(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct tunnel *t;
    uint32_t port;

    if (parse_u32(c->params[1], 1, UINT16_MAX, &port, &err) < 0) {
        err_wrap(&err, "port '%.20s'", c->params[1]);
        call_reply_err(c, &err);
        return;
    }
    t = xnew0(struct tunnel);
    t->fd = -1;
    t->manager = c->manager;
    t->loop = api_settings(c->api)->loop;
    t->name = xstrdup(c->params[0]);
    t->pending.max = TUNNEL_IN_MAX;
    if (manager_dial(c->manager, t->name, (uint16_t)port, api_ports_dialled, t, &err) < 0) {
        api_ports_tunnel_free(t);
        call_reply_err(c, &err);
        return;
    }
    t->req = call_take_request(c);
    http_req_set_user(t->req, t);
    http_req_on_gone(t->req, api_ports_on_gone);
}

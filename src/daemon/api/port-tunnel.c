/*
 * Each direction of a tunnel has its own end and its own back-pressure.
 */
#include "daemon/api/port-tunnel.h"

#include <errno.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "daemon/api/call.h"
#include "daemon/core/sandbox/copy-dial.h"
#include "lib/base/buf.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

enum {
    TUNNEL_PIECE = 64 << 10,
    TUNNEL_OUT_MAX = 256 << 10, /* bytes that may wait for a slow client */
    TUNNEL_IN_MAX =
        256 << 10, /* bytes that may wait for a slow service: more than one piece of input */
};

struct tunnel {
    struct http_req *req;
    struct manager *manager;
    char *name; /* of the sandbox; owned */
    int fd;     /* to the service; owned */
    struct loop_watch *watch;
    port_tunnel_fn on_end;
    void *arg;
    struct buf pending;  /* bytes that the service has not taken yet */
    bool client_ended;   /* the client sends no more */
    bool service_ended;  /* the service sends no more */
    bool service_closed; /* the service takes no more; it may still send */
};

static char scratch[TUNNEL_PIECE];

static void port_tunnel_free(struct tunnel *t)
{
    if (t->on_end)
        t->on_end(t->arg);
    loop_watch_free(t->watch);
    fd_close(t->fd);
    buf_done(&t->pending);
    free(t->name);
    free(t);
}

static void port_tunnel_finish(struct tunnel *t)
{
    http_raw_close(t->req);
    port_tunnel_free(t);
}

static void port_tunnel_update(struct tunnel *t)
{
    bool reads = !t->service_ended && http_stream_pending(t->req) < TUNNEL_OUT_MAX;

    loop_watch_set(t->watch, (reads ? LOOP_READ : 0) | (t->pending.len ? LOOP_WRITE : 0));
}

/* Both directions have ended and nothing is pending. */
static bool port_tunnel_is_over(const struct tunnel *t)
{
    return t->service_ended && (t->service_closed || (t->client_ended && !t->pending.len));
}

/* ---- from the client to the service ---- */

static size_t port_tunnel_service_write(struct tunnel *t, const char *data, size_t len)
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

static void port_tunnel_flush_pending(struct tunnel *t)
{
    buf_consume(&t->pending, port_tunnel_service_write(t, buf_data(&t->pending), t->pending.len));
    if (t->pending.len)
        return;
    if (t->client_ended)
        shutdown(t->fd, SHUT_WR);
    else
        http_raw_read(t->req, true);
}

static void port_tunnel_on_data(struct http_req *req, const char *data, size_t len)
{
    struct tunnel *t = http_req_user(req);
    size_t taken = t->pending.len ? 0 : port_tunnel_service_write(t, data, len);

    manager_touch(t->manager, t->name);
    if (taken < len) {
        http_raw_read(req, false);
        if (buf_append(&t->pending, data + taken, len - taken) < 0)
            t->service_closed = true; /* cannot happen while the reading is paused */
    }
    if (port_tunnel_is_over(t))
        port_tunnel_finish(t);
    else
        port_tunnel_update(t);
}

static void port_tunnel_on_eof(struct http_req *req)
{
    struct tunnel *t = http_req_user(req);

    t->client_ended = true;
    if (!t->pending.len)
        shutdown(t->fd, SHUT_WR);
    if (port_tunnel_is_over(t))
        port_tunnel_finish(t);
}

/* ---- from the service to the client ---- */

/* False: the service has sent everything. */
static bool port_tunnel_read_service(struct tunnel *t)
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

static void port_tunnel_on_service(void *arg, int events)
{
    struct tunnel *t = arg;

    if (events & LOOP_WRITE && t->pending.len)
        port_tunnel_flush_pending(t);
    if (events & LOOP_READ && !t->service_ended)
        port_tunnel_read_service(t);
    if (port_tunnel_is_over(t))
        port_tunnel_finish(t);
    else
        port_tunnel_update(t);
}

static void port_tunnel_on_drain(struct http_req *req)
{
    struct tunnel *t = http_req_user(req);

    port_tunnel_update(t);
}

/* The last bytes of a client that closes at once are still offered to the service. */
static void port_tunnel_on_gone(struct http_req *req)
{
    struct tunnel *t = http_req_user(req);

    if (t->pending.len)
        port_tunnel_service_write(t, buf_data(&t->pending), t->pending.len);
    port_tunnel_free(t);
}

int port_tunnel_open(struct api *a, const struct port_tunnel *config, struct err *err)
{
    static const struct http_raw_events events = {port_tunnel_on_data, port_tunnel_on_eof,
                                                  port_tunnel_on_drain};
    struct tunnel *t = xnew0(struct tunnel);

    t->req = config->req;
    t->manager = api_settings(a)->manager;
    t->name = xstrdup(config->sandbox);
    t->fd = config->fd;
    t->pending.max = TUNNEL_IN_MAX;
    t->watch = loop_watch_new(api_settings(a)->loop, t->fd, port_tunnel_on_service, t);
    if (!t->watch) {
        port_tunnel_free(t);
        return err_set(err, ERR_LIMIT, "cannot watch the connection");
    }
    t->on_end = config->on_end;
    t->arg = config->arg;
    http_req_set_user(t->req, t);
    http_req_on_gone(t->req, port_tunnel_on_gone);
    http_upgrade_with(t->req, config->protocol, config->fields ? config->fields : "", &events);
    http_raw_write(t->req, config->early, config->early_len);
    port_tunnel_update(t);
    return 0;
}

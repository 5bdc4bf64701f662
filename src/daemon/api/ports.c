/*
 * GET …/ports/{p} with `Upgrade: tcp`: a tunnel to a port inside the sandbox. The supervisor
 * connects inside the sandbox and passes the socket out, so no network is needed.
 */
#include <stdlib.h>

#include "daemon/api/call.h"
#include "daemon/api/port-tunnel.h"
#include "daemon/core/sandbox/copy-dial.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

struct port_dial {
    struct api *api;
    struct http_req *req; /* NULL: the client has disconnected */
    char *name;           /* of the sandbox; owned */
};

static void port_dial_free(struct port_dial *d)
{
    free(d->name);
    free(d);
}

static void port_dial_on_gone(struct http_req *req)
{
    struct port_dial *d = http_req_user(req);

    d->req = NULL; /* port_dial_done() frees it */
}

static void port_dial_done(void *arg, const struct err *err, const struct copy_result *result)
{
    _cleanup_err_ struct err own = ERR_INIT;
    struct port_dial *d = arg;
    const struct port_tunnel tunnel = {
        .sandbox = d->name, .req = d->req, .fd = result->fd, .protocol = TUNNEL_PROTOCOL};

    if (!d->req)
        fd_close(result->fd);
    else if (err)
        http_reply_err(d->req, NULL, err);
    else if (port_tunnel_open(d->api, &tunnel, &own) < 0)
        http_reply_err(d->req, NULL, &own);
    port_dial_free(d);
}

void handle_port(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct port_dial *d;
    uint32_t port;

    if (parse_u32(c->params[1], 1, UINT16_MAX, &port, &err) < 0) {
        err_wrap(&err, "port '%.20s'", c->params[1]);
        call_reply_err(c, &err);
        return;
    }
    d = xnew0(struct port_dial);
    d->api = c->api;
    d->name = xstrdup(c->params[0]);
    if (manager_dial(c->manager, d->name, (uint16_t)port, true, port_dial_done, d, &err) < 0) {
        port_dial_free(d);
        call_reply_err(c, &err);
        return;
    }
    d->req = call_take_request(c);
    http_req_set_user(d->req, d);
    http_req_on_gone(d->req, port_dial_on_gone);
}

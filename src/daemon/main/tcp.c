#include "daemon/main/tcp.h"

#include <stdlib.h>

#include "daemon/api/auth.h"
#include "lib/base/address.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "lib/http/server/http-server.h"
#include "lib/os/container-peer.h"

/* TCP gets this fraction of http.connections. */
enum { CONNECTIONS_SHARE = 4 };

struct tcp {
    char address[ADDRESS_MAX];
    struct auth *auth;
    struct http_server *server;
    bool container_logged; /* one line is enough: a container may try for ever */
};

DEFINE_CLEANUP(struct tcp *, tcp_close);

static void tcp_on_refused(void *arg, unsigned tries)
{
    const struct tcp *t = arg;

    log_warn("%s: refused %u requests without a valid token", t->address, tries);
}

/*
 * A container with a network can reach every address of the machine except loopback, so also this
 * listener. Sandboxes must not use the API, so their connections are refused here. For sandboxes
 * of the native engine, network rules do that.
 */
static bool tcp_turn_away(void *arg, int fd)
{
    struct tcp *t = arg;

    if (!container_peer_is_local(fd))
        return false;
    if (!t->container_logged)
        log_warn("%s: refused a connection from a container on this machine (logged once)",
                 t->address);
    t->container_logged = true;
    return true;
}

/* The traffic is not encrypted, and the token gives all rights of the daemon. */
static int tcp_check_reach(const struct address *a, bool remote, struct err *err)
{
    char text[ADDRESS_MAX];

    if (remote || address_is_loopback(a))
        return 0;
    err_set(err, ERR_DENIED,
            "'%s': other machines can reach this address, and the traffic is not encrypted",
            address_format(a, text));
    return err_hint(err, "Listen on 127.0.0.1 and connect through 'ssh -L' or a TLS proxy. If the "
                         "network itself is safe, use --allow-remote (http.remote in "
                         "ripcord.yaml).");
}

static int tcp_open_auth(struct tcp *t, const struct tcp_config *config, struct err *err)
{
    const struct auth_config auth = {
        .address = t->address,
        .names = config->hosts,
        .state_dir = config->state_dir,
        .on_refused = tcp_on_refused,
        .arg = t,
    };

    return auth_new(&auth, &t->auth, err);
}

/* Takes *fd. */
static int tcp_open_server(struct tcp *t, const struct tcp_config *config, int *fd, struct err *err)
{
    struct http_server_config http = *config->http;
    int r;

    http.admit = auth_tcp;
    http.admit_arg = t->auth;
    http.any_peer = true;
    http.turn_away = tcp_turn_away;
    http.turn_away_arg = t;
    http.connections_max = MAX(http.connections_max / CONNECTIONS_SHARE, 1U);
    r = http_server_new(config->loop, &http, &t->server, err);
    if (r < 0)
        return r;
    return http_server_listen(t->server, TAKE_FD(*fd), err);
}

int tcp_open(const struct tcp_config *config, struct tcp **ret, struct err *err)
{
    _cleanup_(tcp_closep) struct tcp *t = NULL;
    _cleanup_close_ int fd = -1;
    struct address at;
    int r;

    if (!config->listen || !*config->listen)
        return 0;
    r = address_parse(config->listen, &at, err);
    if (r < 0)
        return r;
    r = tcp_check_reach(&at, config->remote, err);
    if (r < 0)
        return r;
    r = address_listen(&at, &fd, err);
    if (r < 0)
        return r;
    t = xnew0(struct tcp);
    address_format(&at, t->address);
    r = tcp_open_auth(t, config, err);
    if (r < 0)
        return r;
    r = tcp_open_server(t, config, &fd, err);
    if (r < 0)
        return r;
    log_info("listening on %s (requests need the token)", t->address);
    *ret = TAKE_PTR(t);
    return 0;
}

void tcp_tick(struct tcp *t)
{
    if (!t || !auth_tick(t->auth))
        return;
    log_info("%s: the token has changed, closing all connections", t->address);
    http_server_drop(t->server);
}

void tcp_stop_accepting(struct tcp *t)
{
    if (t)
        http_server_stop_accepting(t->server);
}

const char *tcp_address(const struct tcp *t)
{
    return t ? t->address : NULL;
}

struct auth *tcp_auth(const struct tcp *t)
{
    return t ? t->auth : NULL;
}

void tcp_close(struct tcp *t)
{
    if (!t)
        return;
    http_server_free(t->server);
    auth_free(t->auth);
    free(t);
}

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

/* Of the connections that may be open at once. */
enum { CONNECTIONS_SHARE = 4 };

struct tcp {
    char address[ADDRESS_MAX];
    struct auth *auth;
    struct http_server *server;
    bool told; /* that a container was turned away: it may try for ever */
};

static void tcp_on_refused(void *arg, unsigned tries)
{
    const struct tcp *t = arg;

    log_warn("%s: refused %u requests without the right token", t->address, tries);
}

/*
 * Containers with a network reach every address of the machine, ours among them when it is not
 * loopback; no sandbox has any business here. Those of the native engine are stopped by rules.
 */
static bool tcp_turn_away(void *arg, int fd)
{
    struct tcp *t = arg;

    if (!container_peer_is_local(fd))
        return false;
    if (!t->told)
        log_warn("%s: a container of this machine has tried to connect and was turned away, as "
                 "all will be",
                 t->address);
    t->told = true;
    return true;
}

/* What goes over it is not encrypted, and the token is as good as the daemon's own rights. */
static int tcp_check_reach(const struct address *a, bool remote, struct err *err)
{
    char text[ADDRESS_MAX];

    if (remote || address_is_loopback(a))
        return 0;
    err_set(err, ERR_DENIED,
            "'%s' can be reached by other machines, and nothing would be encrypted",
            address_format(a, text));
    return err_hint(err, "Listen on 127.0.0.1 and come through 'ssh -L' or a proxy with TLS, or "
                         "say --allow-remote (http.remote in ripcord.yaml) where the network "
                         "itself is safe.");
}

static int tcp_open_gate(struct tcp *t, const struct tcp_config *config, struct err *err)
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

static int tcp_open_server(struct tcp *t, const struct tcp_config *config, int fd, struct err *err)
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
    if (r >= 0)
        return http_server_listen(t->server, fd, err);
    fd_close(fd);
    return r;
}

int tcp_open(const struct tcp_config *config, struct tcp **ret, struct err *err)
{
    struct address at;
    struct tcp *t;
    int fd, r;

    if (!config->listen || !*config->listen)
        return 0;
    r = address_parse(config->listen, &at, err);
    if (r >= 0)
        r = tcp_check_reach(&at, config->remote, err);
    if (r >= 0)
        r = address_listen(&at, &fd, err);
    if (r < 0)
        return r;
    t = xnew0(struct tcp);
    address_format(&at, t->address);
    r = tcp_open_gate(t, config, err);
    if (r < 0)
        fd_close(fd);
    else
        r = tcp_open_server(t, config, fd, err);
    if (r < 0) {
        tcp_close(t);
        return r;
    }
    log_info("listening on %s, for those who have the token", t->address);
    *ret = t;
    return 0;
}

void tcp_tick(struct tcp *t)
{
    if (!t || !auth_tick(t->auth))
        return;
    log_info("%s: the token has changed, its connections end", t->address);
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

void tcp_close(struct tcp *t)
{
    if (!t)
        return;
    http_server_free(t->server);
    auth_free(t->auth);
    free(t);
}

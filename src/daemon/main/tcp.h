/*
 * The API on a TCP address, for clients that have the token. It is a second HTTP server beside that
 * of the unix socket, with its own share of connections, so TCP clients cannot exhaust those of the
 * socket. daemon/api/auth.h checks the requests. Everything runs on the loop's thread.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

struct http_server_config;
struct loop;
struct tcp;

struct tcp_config {
    const char *listen;    /* "" or NULL: tcp_open() does nothing and leaves *ret alone */
    bool remote;           /* allow an address that other machines can reach */
    char *const *hosts;    /* further host names; must live as long as the server */
    const char *state_dir; /* folder of the token; must live as long as the server */
    struct loop *loop;
    const struct http_server_config *http; /* settings of the unix socket's server, copied */
};

int tcp_open(const struct tcp_config *config, struct tcp **ret, struct err *err);
/* All of the following accept NULL. */
void tcp_tick(struct tcp *t);
void tcp_stop_accepting(struct tcp *t);
const char *tcp_address(const struct tcp *t); /* "127.0.0.1:7070", or NULL */
struct auth *tcp_auth(const struct tcp *t);
void tcp_close(struct tcp *t);

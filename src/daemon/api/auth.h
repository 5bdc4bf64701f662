/*
 * Authentication of requests, from the head alone, before the body is read. For
 * http_server_config.admit, with the struct auth as its argument. All calls are on the loop's
 * thread.
 *
 * Web pages must not use this API through a user's browser, even if a tunnel or proxy leads here.
 * Browsers name the page that asks (Origin, Sec-Fetch-Site), and pages cannot suppress that.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/token.h"
#include "lib/http/server/http-server.h"

/* For the unix socket, where the kernel authenticates the peer. The argument is not used. */
int auth_unix(void *arg, const struct http_head *head, struct err *err);

/*
 * For TCP. A request must name the daemon's own address or a configured name (else 421), must not
 * come from a foreign web page (403), and must have the token (401). After a few requests per
 * second without the token, further ones get 429. Requests with the token are never limited.
 */
struct auth;

struct auth_config {
    const char *address;   /* of the listener, "127.0.0.1:7070"; borrowed for auth_new() only */
    char *const *names;    /* further host names, with a port or for any port; borrowed */
    const char *state_dir; /* folder of the token; borrowed */
    /* Called at most once a second with the number of requests refused since the last call. */
    void (*on_refused)(void *arg, unsigned tries);
    void *arg;
};

/* Creates the token if it does not exist. */
int auth_new(const struct auth_config *config, struct auth **ret, struct err *err);
void auth_free(struct auth *g); /* accepts NULL */
int auth_tcp(void *auth, const struct http_head *head, struct err *err);
/* Call it regularly: it reports refused requests and checks the token's file. True: the token has
 * changed, so connections that the old one opened must be closed. */
bool auth_tick(struct auth *g);

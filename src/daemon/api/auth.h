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
 * For TCP. A request to the origin of a port is accepted: port-origin.c decides about it. Any other
 * must name the daemon's own address or a configured name (else 421), must not
 * come from a foreign web page (403), and must have the token, a session or a ticket (401). After
 * a few requests per second without one, further ones get 429. Requests with one are never limited.
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
void auth_free(struct auth *a); /* accepts NULL */
int auth_tcp(void *auth, const struct http_head *head, struct err *err);
/*
 * For web pages: a session, whose cookie is accepted below /v1/ if the page is our own, and
 * tickets, each for one WebSocket (`?ticket=`). A new token ends all of them. The texts are for the
 * head of the answer, and the caller's to free.
 */
int auth_begin_session(struct auth *a, char **ret_cookie, struct err *err);
/* False: the request has no session. */
bool auth_end_session(struct auth *a, const struct http_head *head, char **ret_cookie);
int auth_new_ticket(struct auth *a, const char *path, struct api_token *ret, struct err *err);
/* The key of signed links: it changes with the token. NULL: there is no token now. */
const char *auth_key(struct auth *a);
/* Whether a request that was accepted over TCP has a session or a ticket in place of the token. */
bool auth_is_page(const struct http_head *head);

/* Call it regularly: it reports refused requests and checks the token's file. True: the token has
 * changed, so connections that the old one opened must be closed. */
bool auth_tick(struct auth *a);

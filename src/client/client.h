/*
 * A connection to the daemon: one request at a time, with JSON in both directions. Connecting
 * starts the daemon if it does not run, except over TCP and with no_start. Calls block; an object
 * belongs to one thread.
 *
 * A failure that the daemon reports becomes the same error object (code, message, hint) here, so
 * that local and remote failures are printed alike.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/address.h"
#include "lib/base/json.h"
#include "lib/base/path.h"
#include "lib/base/token.h"
#include "lib/http/wire/client.h"

/* Called once per request when the response takes longer than half a second. */
typedef void (*client_slow_fn)(void *userdata);

struct client {
    struct path_roots paths;
    struct http_client http;
    bool connected;
    bool no_start; /* fail if no daemon runs; set it before the first request */
    bool remote;   /* over TCP; the next three fields are valid */
    struct address address;
    char host[ADDRESS_MAX];
    struct api_token token;
    client_slow_fn on_slow; /* may be NULL */
    void *userdata;
};

/*
 * Finds the folders. Does not connect yet. root: as in path_roots_init(). host: an address for
 * address_parse(), or NULL. NULL means RIPCORD_HOST if it is set and not empty and root is NULL:
 * the command line has precedence over the environment.
 *
 * The token for a host is in RIPCORD_TOKEN, else in the state folder. The token of the state folder
 * is used only for loopback addresses: another machine must not learn it.
 */
int client_init(struct client *c, const char *root, const char *host, struct err *err);
/* Prepares a second connection to the same daemon. */
void client_init_like(struct client *c, const struct client *other);
void client_done(struct client *c);
#define _cleanup_client_ __attribute__((cleanup(client_done)))

int client_connect(struct client *c, struct err *err);
void client_disconnect(struct client *c);

/*
 * Sends a request and connects if necessary. body may be NULL (no body). client_call(),
 * client_ask(), client_upgrade() and client_download() send a request and wait for its response. If
 * the daemon ends during that, they send the request once more to the next daemon when this is
 * harmless: for GET and PUT, and for requests that the old daemon cannot have read.
 */
int client_send(struct client *c, const char *method, const char *target, const char *extra_headers,
                const json_t *body, struct err *err);
/* Waits for the response to the last client_send(). A status of 400 or more is an error. *ret is a
 * new reference; ret may be NULL. */
int client_receive(struct client *c, json_t **ret, struct err *err);
/* Whether the last request failed before a daemon had read it whole, so that it had no effect. */
bool client_request_unread(const struct client *c);
int client_call(struct client *c, const char *method, const char *target, const json_t *body,
                json_t **ret, struct err *err);

/* Reads a response body of any size and calls fn for each piece. A failure of fn ends the
 * download. */
typedef int (*client_data_fn)(void *userdata, const char *data, size_t len, struct err *err);
int client_download(struct client *c, const char *target, client_data_fn fn, void *userdata,
                    struct err *err);

/* The same with reads by the caller: client_ask() reads the head, then client_read() reads the body
 * until it returns 0. */
int client_ask(struct client *c, const char *method, const char *target, const json_t *body,
               struct err *err);
ssize_t client_read(struct client *c, void *data, size_t len, struct err *err);

/* The same with a time limit. Returns -ERR_TIMEOUT after it, without losing data. */
ssize_t client_read_for(struct client *c, void *data, size_t len, uint64_t usec, struct err *err);

/* Sends a request with a body of any size: begin, put the pieces, put a piece of length 0, then
 * call client_receive(). client_put() returns 0 when the daemon has responded before the end of the
 * body. */
int client_begin(struct client *c, const char *method, const char *target, const char *content_type,
                 struct err *err);
int client_put(struct client *c, const void *data, size_t len, struct err *err);

/* Instead of client_receive(), for a response in pieces: reads the head; client_read() reads the
 * body. */
int client_head(struct client *c, struct err *err);

/* Escapes `s` for a query string. The caller frees the text. */
char *client_escape(const char *s);

/* Sends a request that upgrades to another protocol. The caller owns *ret_fd. `early` receives
 * bytes that came with the response. */
int client_upgrade(struct client *c, const char *method, const char *target, const char *protocol,
                   const json_t *body, int *ret_fd, struct buf *early, struct err *err);

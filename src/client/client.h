/*
 * A connection to the daemon: one request at a time, JSON both ways. Connecting starts the daemon
 * when none answers, unless it is asked for over TCP. Blocking; one thread.
 *
 * A failure that the daemon reports comes back as the same error object (code, message, hint) that
 * it was there, so that a local and a remote failure print alike.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/address.h"
#include "lib/base/json.h"
#include "lib/base/path.h"
#include "lib/base/token.h"
#include "lib/http/wire/client.h"

/* Called when an answer takes longer than half a second, once per request. */
typedef void (*client_slow_fn)(void *userdata);

struct client {
    struct path_roots paths;
    struct http_client http;
    bool connected;
    bool remote; /* over TCP, with what follows */
    struct address address;
    char host[ADDRESS_MAX];
    struct token token;
    client_slow_fn on_slow; /* may be NULL */
    void *userdata;
};

/*
 * Finds the folders; connects to nothing yet. root as in path_roots_init(). host: an address of
 * address_parse(), or NULL, which means RIPCORD_HOST when that is set, not empty and no root is
 * given: what stands on the command line beats the environment.
 *
 * The token for it is in RIPCORD_TOKEN, else in the folders' file, but that only for this machine:
 * another must not be told what opens ours.
 */
int client_init(struct client *c, const char *root, const char *host, struct err *err);
/* A second connection to the same daemon. */
void client_init_like(struct client *c, const struct client *other);
void client_done(struct client *c);
#define _cleanup_client_ __attribute__((cleanup(client_done)))

int client_connect(struct client *c, struct err *err);
void client_disconnect(struct client *c);

/*
 * body may be NULL (no body). Connects when needed. Where the whole request is sent here and its
 * answer awaited (client_call, _ask, _upgrade, _download), one that failed because the daemon has
 * just ended is sent once more, to the next, if that does no harm: GET and PUT, and what it cannot
 * have read.
 */
int client_send(struct client *c, const char *method, const char *target, const char *extra_headers,
                const json_t *body, struct err *err);
/* Waits for the answer to the last client_send(); a status of 400 or more is an error. ret may be
 * NULL. */
int client_receive(struct client *c, json_t **ret, struct err *err);
/* The last request failed, and no daemon has read it whole: it has not been acted upon. */
bool client_was_unheard(const struct client *c);
int client_call(struct client *c, const char *method, const char *target, const json_t *body,
                json_t **ret, struct err *err);

/* A body of any size, piece by piece; fn's failure ends it. */
typedef int (*client_data_fn)(void *userdata, const char *data, size_t len, struct err *err);
int client_download(struct client *c, const char *target, client_data_fn fn, void *userdata,
                    struct err *err);

/* The same for a caller who pulls: the head, then client_read() until it gives 0. */
int client_ask(struct client *c, const char *method, const char *target, const json_t *body,
               struct err *err);
ssize_t client_read(struct client *c, void *data, size_t len, struct err *err);

/* The same, but waits no longer than that: -ERR_TIMEOUT, and nothing is lost. */
ssize_t client_read_for(struct client *c, void *data, size_t len, uint64_t usec, struct err *err);

/* A request with a body of any size: begin, put pieces and at last one of length 0, then
 * client_receive(). put gives 0 when the daemon has answered before the end. */
int client_begin(struct client *c, const char *method, const char *target, const char *content_type,
                 struct err *err);
int client_put(struct client *c, const void *data, size_t len, struct err *err);

/* Instead of client_receive(), for an answer in pieces: its head, then client_read(). */
int client_head(struct client *c, struct err *err);

/* `s` as a value of a query string; new. */
char *client_escape(const char *s);

/* With an upgrade to another protocol: the socket is the caller's, `early` holds what came with the
 * answer. */
int client_upgrade(struct client *c, const char *method, const char *target, const char *protocol,
                   const json_t *body, int *ret_fd, struct buf *early, struct err *err);

/*
 * Who may ask at all, decided from the head of a request before anything else of it is read. For
 * http_server_config.admit, with the gate as its argument.
 *
 * No page of any site may use this API through somebody's browser, whatever tunnel leads here:
 * browsers say for whom they ask, and cannot be made to leave it out (SECURITY E2).
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/token.h"
#include "lib/http/server/http-server.h"

/* The unix socket: the kernel has said who is there. The argument is not used. */
int auth_unix(void *arg, const struct http_head *head, struct err *err);

/*
 * TCP: whoever asks names this daemon's own address or a name that was configured for it (421),
 * asks for no page but one of ours (403), and has the token (401). Those without it are answered so
 * a few times a second, and then not even looked at further (429); who has it is not held up by
 * them.
 */
struct auth;

struct auth_config {
    const char *address;   /* "127.0.0.1:7070": where it listens; borrowed for auth_new() only */
    char *const *names;    /* further names, with a port or for any port; borrowed */
    const char *state_dir; /* of the token; borrowed */
    /* Told of refused tries, at most once a second, with how many since the last time. */
    void (*on_refused)(void *arg, unsigned tries);
    void *arg;
};

/* Makes the token when there is none. */
int auth_new(const struct auth_config *config, struct auth **ret, struct err *err);
void auth_free(struct auth *g); /* NULL is fine */
int auth_tcp(void *auth, const struct http_head *head, struct err *err);
/* To be called now and then: tells of refused tries, and looks at the token's file again. True when
 * it is another one, and so everybody who was let in by the last has to go. */
bool auth_tick(struct auth *g);

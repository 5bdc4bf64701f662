/*
 * The API on an address of the machine, for those who have the token: a second server beside that
 * of the unix socket, with connections of its own, so that whoever knocks here takes nothing from
 * those there. What it asks of a request is in daemon/api/auth.h.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

struct http_server_config;
struct loop;
struct tcp;

struct tcp_config {
    const char *listen;    /* "" or NULL: nothing is opened, *ret is NULL */
    bool remote;           /* also an address that other machines reach */
    char *const *hosts;    /* borrowed for as long as it lives */
    const char *state_dir; /* likewise; of the token */
    struct loop *loop;
    const struct http_server_config *http; /* what the unix socket's has, copied */
};

int tcp_open(const struct tcp_config *config, struct tcp **ret, struct err *err);
/* All of these take NULL. */
void tcp_tick(struct tcp *t);
void tcp_stop_accepting(struct tcp *t);
const char *tcp_address(const struct tcp *t); /* "127.0.0.1:7070", or NULL */
void tcp_close(struct tcp *t);

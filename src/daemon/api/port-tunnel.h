/*
 * A connection of a client that is upgraded and from then on passes bytes to and from a port inside
 * a sandbox.
 */
#pragma once

#include <stddef.h>

#include "lib/base/err.h"

struct api;
struct http_req;

typedef void (*port_tunnel_fn)(void *arg);

struct port_tunnel {
    const char *sandbox;  /* borrowed: its name */
    struct http_req *req; /* not answered yet */
    int fd;               /* to the service; taken, also on failure */
    const char *protocol; /* of the upgrade */
    const char *fields;   /* more lines of the 101, or NULL */
    const char *early;    /* bytes that the service has sent already */
    size_t early_len;
    port_tunnel_fn on_end; /* called when an opened tunnel has ended; or NULL */
    void *arg;
};

/* On failure the request is not answered. */
int port_tunnel_open(struct api *a, const struct port_tunnel *config, struct err *err);

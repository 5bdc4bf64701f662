/*
 * The heads of proxied HTTP messages (port-proxy.h): what a service inside a sandbox gets to see of
 * a request, and what a client gets to see of its answer. Both heads are written anew from parsed
 * ones. The tables in the .c decide field by field; docs/decisions/039-port-proxy.md says why.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/parse.h"
#include "lib/http/wire/http.h"

/* Where the client sees the service. */
enum port_place {
    PORT_IN_API,    /* below /v1/sandboxes/{name}/ports/{port}/, for programs */
    PORT_AS_ORIGIN, /* on a host of its own, for browsers (daemon/api/port-origin.h) */
    PORT_PLACES,
};

enum { PORT_HEAD_MAX = HTTP_HEAD_MAX + (4 << 10), PORT_PREFIX_MAX = 128 };

/* The cookie that opens an origin. It never reaches the service, and the service cannot set it. */
#define PORT_COOKIE "ripcord-port"

struct port_route {
    enum port_place place;
    char name[64]; /* of the sandbox */
    uint16_t port;
    bool wake;          /* start the sandbox if it is down, and wait for the service */
    const char *target; /* for the service: the rest of the client's target; may lack its '/' */
};

/* Whether a target is below /v1/sandboxes/{name}/ports/{port}/. *ret borrows from it. */
bool port_route_parse(const char *target, struct port_route *ret);

/* What is to become of the connection to the service. */
enum port_connection { PORT_CLOSE, PORT_KEEP, PORT_WEBSOCKET };

/* The head of the request to the service. */
int port_request_head(const struct port_route *route, const struct http_head *head,
                      enum port_connection what, struct buf *ret) _must_check_;
/* The lines of the answer's head that the client gets, without those of framing. */
int port_answer_fields(const struct port_route *route, const struct http_head *head,
                       struct buf *ret) _must_check_;

/*
 * The Location of a client for that of the service: a path of the service becomes one below the
 * prefix of the API. False: it leads elsewhere. `from` is the target of the request.
 */
bool port_location(const struct port_route *route, const char *from, const char *location,
                   struct buf *ret);

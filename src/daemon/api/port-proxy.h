/*
 * The proxy to HTTP services inside sandboxes: /v1/sandboxes/{name}/ports/{port}/… with any method,
 * and WebSockets. docs/decisions/039-port-proxy.md has its rules.
 *
 * Neither side's bytes pass as they are: the strict parsers of lib/http/wire read a request and its
 * answer, and both are written anew (port-message.h). A connection to the service carries another
 * request only if the one before and its answer ended as they had announced (port-pool.h).
 */
#pragma once

#include <stdbool.h>

#include "daemon/api/port-message.h"

struct api;
struct http_req;

/* Whether the request is for the proxy, which then gets its target as it was sent. */
bool port_proxy_wants(const struct http_head *head, struct port_route *ret);
/* Takes the request. */
void port_proxy_start(struct api *a, struct http_req *req, const struct port_route *route);

/*
 * Origins of services for browsers: http://PORT-ID.localhost, each an origin of its own, which a
 * signed link opens. The API is never served there, nor these origins on the API's names.
 */
#pragma once

struct api;
struct http_req;
struct port_host;

/* Takes the request. */
void port_origin_start(struct api *a, struct http_req *req, const struct port_host *host);

/*
 * The HTTP API: routes, JSON to core's types and back. Knows nothing of sockets (net/) and decides
 * nothing (core/). docs/API.md and docs/openapi.yaml are its contract.
 */
#pragma once

#include "lib/base/json.h"
#include "lib/http/server/http-server.h"

struct api;
struct loop;
struct manager;

struct api_config {
    struct loop *loop;
    struct manager *manager;
    const char *version, *root_id, *state_dir, *run_dir; /* borrowed */
    json_t *(*settings)(void *arg);                      /* the effective configuration */
    const char *(*listen)(void *arg);                    /* the address on TCP, or NULL */
    void *arg;
};

struct api *api_new(const struct api_config *config);
/* The server must be gone (each open request has been told). */
void api_free(struct api *a);
/* For http_server_config.on_request, with the api as its argument. */
void api_on_request(void *arg, struct http_req *req);
/* For http_server_config.want_stream. */
bool api_wants_stream(void *arg, const struct http_head *head, const char *path);
/* Requests that are not answered yet; streams that follow an exec do not count. */
unsigned api_open_calls(const struct api *a);

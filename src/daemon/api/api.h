/*
 * The HTTP API: finds the route of a request, turns JSON into core's types, and answers with JSON.
 * Sockets belong to lib/http/server/http-server.h and decisions to the manager
 * (daemon/core/sandbox/manager.h). docs/API.md and docs/openapi.yaml are its contract; routes.h has
 * the list of routes. Everything runs on the loop's thread.
 */
#pragma once

#include "lib/base/json.h"
#include "lib/http/server/http-server.h"

struct api;
struct auth;
struct loop;
struct manager;

struct api_config {
    struct loop *loop;
    struct manager *manager;
    const char *version, *root_id, *state_dir, *run_dir; /* borrowed */
    json_t *(*settings)(void *arg);                      /* the effective configuration */
    const char *(*listen)(void *arg);                    /* the TCP address, or NULL */
    struct auth *(*auth)(void *arg);                     /* of that address, or NULL */
    const char *(*document)(void);                       /* the API as OpenAPI JSON */
    void *arg;
};

struct api *api_new(const struct api_config *config);
/* Free the server first: it ends the open requests. */
void api_free(struct api *a);
/* For http_server_config.on_request, with the api as its argument. */
void api_on_request(void *arg, struct http_req *req);
/* For http_server_config.identify: the client's own id, or one of ours. The log has it too. */
void api_identify(void *arg, const struct http_req *req, char *ret);
/* For http_server_config.describe: the objects that the request names. */
char *api_describe(const struct http_req *req);
/* For raw_target and want_stream of http_server_config. */
bool api_wants_raw_target(void *arg, const struct http_head *head);
bool api_wants_stream(void *arg, const struct http_head *head, const char *path);
void api_tick(struct api *a); /* from time to time */
/* The number of requests without an answer. Streams that follow an exec do not count, nor do those
 * whose client has gone. */
unsigned api_open_calls(const struct api *a);
/* Ends those whose client has gone, before the manager is freed. */
void api_end_calls(struct api *a);

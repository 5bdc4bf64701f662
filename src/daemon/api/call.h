/*
 * One request on its way through the API: what the handlers share. A call ends with exactly one
 * call_reply*() or by becoming a stream (call_take_request()). The peer may go at any time; the
 * call then lives on until its operation has answered, and the answer goes nowhere.
 */
#pragma once

#include "daemon/api/api.h"
#include "daemon/core/sandbox/manager.h"
#include "lib/base/err.h"

enum { CALL_PARAMS_MAX = 2 };

enum route_flags {
    ROUTE_BODY = 1 << 0,        /* takes a JSON object; an empty body is {} */
    ROUTE_UPGRADE = 1 << 1,     /* needs `Upgrade: ripcord-exec/1` */
    ROUTE_FRESH_STATE = 1 << 2, /* shows states: waits until recovery knows them */
    ROUTE_SOON =
        1 << 7, /* with ROUTE_FRESH_STATE: not for long; `reconciling` where it is not known */
    ROUTE_MAY_UPGRADE = 1 << 3,
    ROUTE_TUNNEL = 1 << 4, /* needs `Upgrade: tcp` */
    ROUTE_STREAM = 1 << 5, /* takes a body of any length, as it comes */
    ROUTE_LIVE = 1 << 6,   /* nothing to do without its peer: req is there when it begins */
};

struct call;
typedef void (*call_fn)(struct call *c);

struct route {
    const char *method;
    const char *pattern; /* "*" matches one segment, which becomes a parameter */
    call_fn handler;
    unsigned flags;
};

struct call {
    struct api *api;
    struct manager *manager;
    struct http_req *req; /* NULL: the peer has gone */
    const struct route *route;
    char *path;                          /* owned, cut into segments */
    const char *params[CALL_PARAMS_MAX]; /* in path */
    json_t *body;                        /* owned; with ROUTE_BODY never NULL */
    uint64_t number;                     /* the handler's own */
};

const struct api_config *api_settings(const struct api *a);

/* Each frees the call. call_reply() takes the document. */
void call_reply(struct call *c, int status, json_t *doc);
void call_reply_text(struct call *c, int status, const char *json);
void call_reply_err(struct call *c, const struct err *err);
/* For calls of others that answer with JSON of our own make, which goes out as it is; arg: the
 * call. */
void call_answered(void *arg, const struct err *err, const char *json);
void call_reply_status(struct call *c, int status, const struct err *err);
/* The request for one's own use; the call is freed. NULL when the peer has gone. */
struct http_req *call_take_request(struct call *c);

/* To the protocol of its route. */
bool call_wants_upgrade(const struct call *c);
#define TUNNEL_PROTOCOL "tcp"
/* ?key=TEXT, owned by the caller; NULL when absent. */
int call_query_text(const struct call *c, const char *key, char **ret, struct err *err);
/* Every ?key=TEXT, added to a strv. */
int call_query_texts(const struct call *c, const char *key, char ***ret, struct err *err);
/* ?key=N; 0 when absent. */
int call_query_u64(const struct call *c, const char *key, uint64_t *ret, struct err *err);
int call_query_bool(const struct call *c, const char *key, bool *ret, struct err *err);
/* The sandbox of the first parameter; answers and frees the call when there is none. */
struct sandbox *call_sandbox(struct call *c);

json_t *sandbox_to_json(const struct sandbox *sb);

/* Handlers, by file. */
void handle_health(struct call *c);
void handle_ready(struct call *c);
void handle_version(struct call *c);
void handle_config(struct call *c);
void handle_engines(struct call *c);

void handle_events(struct call *c);

void handle_reconcile_get(struct call *c);
void handle_reconcile(struct call *c);

void handle_caches(struct call *c);
void handle_cache_list(struct call *c);
void handle_cache_show(struct call *c);
void handle_cache_verify(struct call *c);
void handle_cache_prune(struct call *c);
void handle_tool_caches(struct call *c);
void handle_cache_warm(struct call *c);
void handle_tool_prune(struct call *c);
void handle_mount_caches(struct call *c);
void handle_mount_cache_remove(struct call *c);
void handle_mount_cache_prune(struct call *c);

void handle_image_build(struct call *c);
void handle_image_list(struct call *c);
void handle_image_import(struct call *c);
void handle_image_export(struct call *c);
void handle_image_pull(struct call *c);
void handle_image_push(struct call *c);
void handle_image_show(struct call *c);
void handle_image_remove(struct call *c);
void handle_image_prune(struct call *c);

void handle_sandbox_list(struct call *c);
void handle_sandbox_ensure(struct call *c);
void handle_sandbox_get(struct call *c);
void handle_sandbox_remove(struct call *c);
void handle_sandbox_stop(struct call *c);
void handle_sandbox_lease(struct call *c);
void handle_sandbox_pause(struct call *c);
void handle_sandbox_resume(struct call *c);

void handle_exec_start(struct call *c);
void handle_exec_list(struct call *c);
void handle_exec_list_all(struct call *c);
void handle_exec_get(struct call *c);
void handle_exec_stdout(struct call *c);
void handle_exec_stderr(struct call *c);
void handle_exec_attach(struct call *c);
void handle_exec_signal(struct call *c);
void handle_exec_kill(struct call *c);
void handle_run(struct call *c);

void handle_session_start(struct call *c);
void handle_session_list(struct call *c);
void handle_session_get(struct call *c);
void handle_session_events(struct call *c);
void handle_session_cancel(struct call *c);

void handle_files_get(struct call *c);
void handle_files_put(struct call *c);
void handle_port(struct call *c);

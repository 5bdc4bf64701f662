/*
 * One request on its way through the API, and the functions that all handlers share. A handler ends
 * a call with exactly one call_reply*(), or turns it into a stream with call_take_request(). The
 * peer may disconnect at any time. The call then lives until its operation has ended, and the
 * answer is dropped.
 */
#pragma once

#include "daemon/api/api.h"
#include "daemon/core/sandbox/manager.h"
#include "lib/base/err.h"
#include "lib/base/json-put.h"

struct api_call;
struct exec;
struct route;

enum { CALL_PARAMS_MAX = 2 };

struct api_call {
    struct api *api;
    struct manager *manager;
    struct http_req *req; /* NULL: the peer has disconnected */
    const struct route *route;
    char *successor; /* owned: the new path, if the request used an old one; else NULL */
    char *path;      /* owned, cut into segments */
    const char *params[CALL_PARAMS_MAX]; /* in path */
    json_t *body;                        /* owned; with ROUTE_BODY never NULL */
    struct call_key *key;                /* idempotency.c; NULL: none was sent */
    uint64_t number;                     /* for the handler's own use */
    /* Called once if the peer disconnects before the answer; NULL: not called. */
    void (*on_gone)(void *arg);
    void *gone_arg;
    bool alone; /* see call_go_on() */
    struct api_call *next_alone;
};

const struct api_config *api_settings(const struct api *a);

/* Each of these answers and frees the call. call_reply() takes the document. */
void call_reply(struct api_call *c, int status, json_t *doc);
void call_reply_text(struct api_call *c, int status, const char *json);
/* extra: header lines, each with its line break. */
void call_reply_with(struct api_call *c, int status, json_t *doc, const char *extra);
void call_reply_err(struct api_call *c, const struct err *err);
/* A callback for operations that answer with JSON text; the text is sent unchanged. arg: the
 * call. */
void call_answered(void *arg, const struct err *err, const char *json);
void call_reply_status(struct api_call *c, int status, const struct err *err);
/* Hands the request over to the caller and frees the call. NULL: the peer has disconnected. */
struct http_req *call_take_request(struct api_call *c);

/* For on_gone: the call goes on for the answer that its key keeps. The daemon's end does not wait
 * for it, and calls on_gone once more; then this returns false. */
bool call_go_on(struct api_call *c);

/* Whether the request asks for an upgrade to the protocol of its route. */
bool call_wants_upgrade(const struct api_call *c);
#define TUNNEL_PROTOCOL "tcp"
/* Each reads ?key=…, and leaves *ret alone if the key is absent. A text is the caller's to free. */
int call_query_text(const struct api_call *c, const char *key, char **ret, struct err *err);
/* ?engine=…, which must be the name of an engine. */
int call_query_engine(const struct api_call *c, char **ret, struct err *err);
/* Adds the values of all ?key=… to a strv. */
int call_query_texts(const struct api_call *c, const char *key, char ***ret, struct err *err);
int call_query_u64(const struct api_call *c, const char *key, uint64_t *ret, struct err *err);
int call_query_bool(const struct api_call *c, const char *key, bool *ret, struct err *err);
/* The sandbox of the first parameter. NULL: it does not exist; the call is answered and freed. */
struct sandbox *call_sandbox(struct api_call *c);

/* The running exec of the first two parameters. ERR_CONFLICT: it has ended. */
int call_live_exec(struct api_call *c, struct exec **ret, struct err *err);

/* Writes SANDBOX into a JSON_PUT_INIT buffer. `env`: with the environment in its spec. */
void sandbox_put(struct buf *b, const char *key, const struct sandbox *sb, bool env);

/* The handlers, grouped by file. */
void handle_health(struct api_call *c);
void handle_ready(struct api_call *c);
void handle_version(struct api_call *c);
void handle_config(struct api_call *c);
void handle_openapi(struct api_call *c);
void handle_engines(struct api_call *c);

void handle_web_session_begin(struct api_call *c);
void handle_web_session_end(struct api_call *c);
void handle_web_ticket(struct api_call *c);

void handle_doctor(struct api_call *c);

void handle_events(struct api_call *c);

void handle_reconcile_get(struct api_call *c);
void handle_reconcile(struct api_call *c);

void handle_caches(struct api_call *c);
void handle_cache_list(struct api_call *c);
void handle_cache_show(struct api_call *c);
void handle_cache_verify(struct api_call *c);
void handle_cache_prune(struct api_call *c);
void handle_tool_caches(struct api_call *c);
void handle_cache_warm(struct api_call *c);
void handle_tool_prune(struct api_call *c);
void handle_mount_caches(struct api_call *c);
void handle_mount_cache_remove(struct api_call *c);
void handle_mount_cache_prune(struct api_call *c);

void handle_image_build(struct api_call *c);
void handle_image_list(struct api_call *c);
void handle_image_import(struct api_call *c);
void handle_image_export(struct api_call *c);
void handle_image_pull(struct api_call *c);
void handle_image_push(struct api_call *c);
void handle_image_show(struct api_call *c);
void handle_image_remove(struct api_call *c);
void handle_image_prune(struct api_call *c);

void handle_sandbox_list(struct api_call *c);
void handle_sandbox_ensure(struct api_call *c);
void handle_sandbox_get(struct api_call *c);
void handle_sandbox_remove(struct api_call *c);
void handle_sandbox_stop(struct api_call *c);
void handle_sandbox_lease(struct api_call *c);
void handle_sandbox_pause(struct api_call *c);
void handle_sandbox_resume(struct api_call *c);

void handle_exec_start(struct api_call *c);
void handle_exec_socket(struct api_call *c);
void handle_exec_list(struct api_call *c);
void handle_exec_list_all(struct api_call *c);
void handle_exec_get(struct api_call *c);
void handle_exec_stdout(struct api_call *c);
void handle_exec_stderr(struct api_call *c);
void handle_exec_times(struct api_call *c);
void handle_exec_attach(struct api_call *c);
void handle_exec_signal(struct api_call *c);
void handle_exec_kill(struct api_call *c);
void handle_exec_stream(struct api_call *c);
void handle_exec_stdin(struct api_call *c);
void handle_exec_stdin_close(struct api_call *c);
void handle_exec_resize(struct api_call *c);
void handle_run(struct api_call *c);

void handle_session_start(struct api_call *c);
void handle_session_list(struct api_call *c);
void handle_session_get(struct api_call *c);
void handle_session_events(struct api_call *c);
void handle_session_cancel(struct api_call *c);

void handle_files_get(struct api_call *c);
void handle_files_put(struct api_call *c);
void handle_file_op(struct api_call *c);
void handle_file_watch(struct api_call *c);
void handle_port_link(struct api_call *c);
void handle_port_list(struct api_call *c);
void handle_port(struct api_call *c);

#include "daemon/api/api.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/api/call.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "proto/exec-frames.h"

/* How long an answer is held back for states that are not known yet. */
#define SOON (200 * USEC_PER_MSEC)

struct api {
    struct api_config config;
    unsigned open_calls;
};

/* clang-format off */
static const struct route routes[] = {
    {"GET",    "/healthz",                          handle_health,         0},
    {"GET",    "/readyz",                           handle_ready,          0},
    {"GET",    "/v1/version",                       handle_version,        0},
    {"GET",    "/v1/config",                        handle_config,         0},
    {"GET",    "/v1/engines",                       handle_engines,        0},
    {"GET",    "/v1/caches",                        handle_caches,         0},
    {"GET",    "/v1/caches/tools",                  handle_tool_caches,    0},
    {"POST",   "/v1/caches/tools/warm",             handle_cache_warm,     ROUTE_BODY},
    {"POST",   "/v1/caches/tools/prune",            handle_tool_prune,     ROUTE_BODY},
    {"GET",    "/v1/caches/mounts",                 handle_mount_caches,   0},
    {"DELETE", "/v1/caches/mounts",                 handle_mount_cache_remove, 0},
    {"POST",   "/v1/caches/mounts/prune",           handle_mount_cache_prune, ROUTE_BODY},
    {"GET",    "/v1/caches/registry",               handle_cache_list,     0},
    {"GET",    "/v1/caches/registry/show",          handle_cache_show,     0},
    {"POST",   "/v1/caches/registry/verify",        handle_cache_verify,   ROUTE_BODY},
    {"POST",   "/v1/caches/registry/prune",         handle_cache_prune,    ROUTE_BODY},
    {"GET",    "/v1/events",                        handle_events,         ROUTE_LIVE},
    {"GET",    "/v1/execs",                         handle_exec_list_all,  ROUTE_FRESH_STATE},
    {"GET",    "/v1/images",                        handle_image_list,     0},
    {"POST",   "/v1/images",                        handle_image_import,   ROUTE_STREAM | ROUTE_LIVE},
    {"DELETE", "/v1/images",                        handle_image_remove,   ROUTE_FRESH_STATE},
    {"GET",    "/v1/images/export",                 handle_image_export,   ROUTE_LIVE},
    {"POST",   "/v1/images/build",                  handle_image_build,    ROUTE_STREAM | ROUTE_LIVE},
    {"POST",   "/v1/images/pull",                   handle_image_pull,     ROUTE_BODY | ROUTE_LIVE},
    {"POST",   "/v1/images/push",                   handle_image_push,     ROUTE_BODY | ROUTE_LIVE},
    {"GET",    "/v1/images/show",                   handle_image_show,     0},
    {"POST",   "/v1/images/prune",                  handle_image_prune,    ROUTE_BODY | ROUTE_FRESH_STATE},
    {"GET",    "/v1/reconcile",                     handle_reconcile_get,  0},
    {"POST",   "/v1/reconcile",                     handle_reconcile,      ROUTE_BODY},
    {"GET",    "/v1/sandboxes",                     handle_sandbox_list,   ROUTE_FRESH_STATE | ROUTE_SOON},
    {"PUT",    "/v1/sandboxes/*",                   handle_sandbox_ensure, ROUTE_BODY},
    {"GET",    "/v1/sandboxes/*",                   handle_sandbox_get,    ROUTE_FRESH_STATE | ROUTE_SOON},
    {"PATCH",  "/v1/sandboxes/*",                   handle_sandbox_lease,  ROUTE_BODY | ROUTE_FRESH_STATE},
    {"DELETE", "/v1/sandboxes/*",                   handle_sandbox_remove, 0},
    {"POST",   "/v1/sandboxes/*/stop",              handle_sandbox_stop,   ROUTE_BODY},
    {"POST",   "/v1/sandboxes/*/pause",             handle_sandbox_pause,  ROUTE_BODY},
    {"POST",   "/v1/sandboxes/*/resume",            handle_sandbox_resume, ROUTE_BODY},
    {"POST",   "/v1/sandboxes/*/execs",             handle_exec_start,     ROUTE_BODY | ROUTE_MAY_UPGRADE},
    {"GET",    "/v1/sandboxes/*/execs",             handle_exec_list,      ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/execs/*",           handle_exec_get,       ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/execs/*/stdout",    handle_exec_stdout,    ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/execs/*/stderr",    handle_exec_stderr,    ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/execs/*/attach",    handle_exec_attach,    ROUTE_BODY | ROUTE_UPGRADE | ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/execs/*/signal",    handle_exec_signal,    ROUTE_BODY | ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/execs/*/kill",      handle_exec_kill,      ROUTE_BODY | ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/sessions",          handle_session_start,  ROUTE_BODY | ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/sessions",          handle_session_list,   ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/sessions/*",        handle_session_get,    ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/sessions/*/events", handle_session_events, ROUTE_LIVE | ROUTE_FRESH_STATE},
    {"POST",   "/v1/sandboxes/*/sessions/*/cancel", handle_session_cancel, ROUTE_BODY | ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/files",             handle_files_get,      ROUTE_LIVE | ROUTE_FRESH_STATE},
    {"PUT",    "/v1/sandboxes/*/files",             handle_files_put,      ROUTE_STREAM | ROUTE_LIVE | ROUTE_FRESH_STATE},
    {"GET",    "/v1/sandboxes/*/ports/*",           handle_port,           ROUTE_TUNNEL | ROUTE_LIVE | ROUTE_FRESH_STATE},
    {"POST",   "/v1/run",                           handle_run,            ROUTE_BODY | ROUTE_UPGRADE},
};
/* clang-format on */

struct api *api_new(const struct api_config *config)
{
    struct api *a = xnew0(struct api);

    a->config = *config;
    return a;
}

void api_free(struct api *a)
{
    free(a);
}

unsigned api_open_calls(const struct api *a)
{
    return a->open_calls;
}

const struct api_config *api_settings(const struct api *a)
{
    return &a->config;
}

/* ---- calls ---- */

static void api_on_gone(struct http_req *req)
{
    struct api_call *c = http_req_user(req);

    c->req = NULL;
}

static struct api_call *api_call_new(struct api *a, struct http_req *req)
{
    struct api_call *c = xnew0(struct api_call);

    c->api = a;
    c->manager = a->config.manager;
    c->req = req;
    c->path = xstrdup(http_req_path(req));
    http_req_set_user(req, c);
    http_req_on_gone(req, api_on_gone);
    a->open_calls++;
    return c;
}

static void api_call_free(struct api_call *c)
{
    c->api->open_calls--;
    json_decref(c->body);
    free(c->path);
    free(c);
}

void call_reply_text(struct api_call *c, int status, const char *json)
{
    if (c->req)
        http_reply(c->req, status, "application/json", json, strlen(json));
    api_call_free(c);
}

void call_reply(struct api_call *c, int status, json_t *doc)
{
    _cleanup_free_ char *text = json_to_text(doc, false);

    json_decref(doc);
    call_reply_text(c, status, text);
}

void call_reply_err(struct api_call *c, const struct err *err)
{
    if (c->req)
        http_reply_err(c->req, err);
    api_call_free(c);
}

void call_answered(void *arg, const struct err *err, const char *json)
{
    struct api_call *c = arg;

    if (err)
        call_reply_err(c, err);
    else
        call_reply_text(c, 200, json);
}

void call_reply_status(struct api_call *c, int status, const struct err *err)
{
    call_reply(c, status, json_from_err(err));
}

struct http_req *call_take_request(struct api_call *c)
{
    struct http_req *req = c->req;

    if (req)
        http_req_set_user(req, NULL);
    api_call_free(c);
    return req;
}

static const char *api_route_protocol(const struct route *r)
{
    return r->flags & ROUTE_TUNNEL ? TUNNEL_PROTOCOL : FRAME_PROTOCOL;
}

bool call_wants_upgrade(const struct api_call *c)
{
    const char *up = c->req ? http_req_head(c->req)->upgrade : NULL;

    return up && STREQ(up, api_route_protocol(c->route));
}

/* 1 and the value; 0 when it is not there. */
static int api_query_value(const struct api_call *c, const char *key, char **ret, struct err *err)
{
    int r;

    if (!c->req || !http_req_query(c->req))
        return 0;
    r = http_query_get(http_req_query(c->req), key, ret, err);
    return r < 0 ? r : *ret != NULL;
}

int call_query_text(const struct api_call *c, const char *key, char **ret, struct err *err)
{
    return MIN(api_query_value(c, key, ret, err), 0);
}

int call_query_texts(const struct api_call *c, const char *key, char ***ret, struct err *err)
{
    return c->req ? http_query_all(http_req_query(c->req), key, ret, err) : 0;
}

int call_query_u64(const struct api_call *c, const char *key, uint64_t *ret, struct err *err)
{
    _cleanup_free_ char *value = NULL;
    int r = api_query_value(c, key, &value, err);

    if (r > 0 && parse_u64(value, 0, INT64_MAX, ret, err) < 0)
        return err_wrap(err, "query parameter '%s'", key);
    return MIN(r, 0);
}

int call_query_bool(const struct api_call *c, const char *key, bool *ret, struct err *err)
{
    _cleanup_free_ char *value = NULL;
    int r = api_query_value(c, key, &value, err);

    if (r > 0 && parse_bool(value, ret, err) < 0)
        return err_wrap(err, "query parameter '%s'", key);
    return MIN(r, 0);
}

struct sandbox *call_sandbox(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = manager_find(c->manager, c->params[0], &err);

    if (!sb)
        call_reply_err(c, &err);
    return sb;
}

/* ---- routing ---- */

/* The length of the segment at p; p points behind a '/'. */
static size_t api_segment_len(const char *p)
{
    return strcspn(p, "/");
}

static bool api_matches(const char *pattern, const char *path)
{
    while (*pattern == '/' && *path == '/') {
        size_t want = api_segment_len(++pattern), have = api_segment_len(++path);
        bool any = want == 1 && *pattern == '*';

        if (!have || (!any && (want != have || memcmp(pattern, path, want) != 0)))
            return false;
        pattern += want;
        path += have;
    }
    return !*pattern && !*path;
}

/* Cuts the call's own copy of the path into its parameters. */
static void api_take_params(struct api_call *c, const char *pattern)
{
    char *p = c->path;
    size_t n = 0;

    while (*pattern == '/' && *p == '/') {
        size_t want = api_segment_len(++pattern), have;

        *p++ = '\0';
        have = api_segment_len(p);
        if (*pattern == '*' && n < CALL_PARAMS_MAX)
            c->params[n++] = p;
        pattern += want;
        p += have;
    }
}

static const struct route *api_find_route(const char *method, const char *path, bool *path_known)
{
    *path_known = false;
    for (size_t i = 0; i < ARRAY_SIZE(routes); i++) {
        if (!api_matches(routes[i].pattern, path))
            continue;
        *path_known = true;
        if (STREQ(routes[i].method, method))
            return &routes[i];
    }
    return NULL;
}

static void api_reply_no_route(struct api_call *c, bool path_known)
{
    _cleanup_err_ struct err err = ERR_INIT;
    const char *method = http_req_head(c->req)->method;

    if (path_known) {
        err_set(&err, ERR_INVALID, "%s is not a method of '%s'", method, c->path);
        call_reply_status(c, 405, &err);
        return;
    }
    err_set(&err, ERR_NOT_FOUND, "nothing is at '%s'", c->path);
    call_reply_err(c, &err);
}

static bool api_is_json_type(const char *type)
{
    static const char json[] = "application/json";
    size_t len = sizeof(json) - 1;

    return type && strncasecmp(type, json, len) == 0 &&
           (type[len] == '\0' || type[len] == ';' || type[len] == ' ');
}

/* 0, or the status of the refusal with *err filled. */
static int api_read_body(struct api_call *c, struct err *err)
{
    size_t len;
    const char *text = http_req_body(c->req, &len);
    bool wanted = c->route->flags & ROUTE_BODY;

    if (len == 0) {
        c->body = wanted ? json_object() : NULL;
        return 0;
    }
    if (!wanted) {
        err_set(err, ERR_INVALID, "%s '%s' takes no body", c->route->method, http_req_path(c->req));
        return 400;
    }
    if (!api_is_json_type(http_field_get(http_req_head(c->req), "content-type"))) {
        err_set(err, ERR_INVALID, "the body's Content-Type must be application/json");
        return 415;
    }
    if (json_parse("request body", text, len, &c->body, err) < 0)
        return 400;
    if (json_is_object(c->body))
        return 0;
    err_set(err, ERR_INVALID, "request body must be a JSON object");
    return 400;
}

/* 0, or the status of the refusal. */
static int api_check_upgrade(struct api_call *c, struct err *err)
{
    const char *up = http_req_head(c->req)->upgrade;

    if (c->route->flags & (ROUTE_UPGRADE | ROUTE_TUNNEL) && !call_wants_upgrade(c)) {
        err_set(err, ERR_INVALID, "'%s' needs 'Connection: Upgrade' and 'Upgrade: %s'",
                http_req_path(c->req), api_route_protocol(c->route));
        return 426;
    }
    if (c->route->flags & ROUTE_MAY_UPGRADE && up && !call_wants_upgrade(c)) {
        err_set(err, ERR_INVALID, "unknown protocol in 'Upgrade': '%s' is spoken here",
                FRAME_PROTOCOL);
        return 400;
    }
    return 0;
}

static void api_run_handler(void *arg)
{
    struct api_call *c = arg;

    if (!c->req && c->route->flags & ROUTE_LIVE)
        api_call_free(c);
    else
        c->route->handler(c);
}

bool api_wants_stream(void *arg _unused_, const struct http_head *head, const char *path)
{
    bool path_known;
    const struct route *r = api_find_route(head->method, path, &path_known);

    return r && r->flags & ROUTE_STREAM;
}

void api_on_request(void *arg, struct http_req *req)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct api_call *c = api_call_new(arg, req);
    bool path_known;
    int status;

    c->route = api_find_route(http_req_head(req)->method, c->path, &path_known);
    if (!c->route) {
        api_reply_no_route(c, path_known);
        return;
    }
    api_take_params(c, c->route->pattern);
    status = api_check_upgrade(c, &err);
    if (!status)
        status = api_read_body(c, &err);
    if (status)
        call_reply_status(c, status, &err);
    else if (c->route->flags & ROUTE_FRESH_STATE && !manager_is_recovered(c->manager))
        manager_when_recovered(c->manager, c->route->flags & ROUTE_SOON ? SOON : 0, api_run_handler,
                               c);
    else
        api_run_handler(c);
}

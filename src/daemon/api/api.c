#include "daemon/api/api.h"

#include <malloc.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "daemon/api/auth.h"
#include "daemon/api/call.h"
#include "daemon/api/idempotency.h"
#include "daemon/api/port-link.h"
#include "daemon/api/port-origin.h"
#include "daemon/api/port-pool.h"
#include "daemon/api/port-proxy.h"
#include "daemon/api/routes.h"
#include "lib/base/cleanup.h"
#include "lib/base/command-size.h"
#include "lib/base/log.h"
#include "lib/base/parse.h"
#include "lib/base/text.h"
#include "lib/base/xalloc.h"
#include "lib/http/wire/websocket.h"
#include "proto/exec-frames.h"

enum {
    BODY_LARGE = 256 << 10,
    BODY_SMALL = 1 << 20,
    OBJECTS_MAX = 16 << 10,
    BODY_VALUES_MAX = 2 * COMMAND_STRINGS_MAX + 10000, /* all words and variables, and the rest */
};

/* How long a ROUTE_SOON answer waits for states that recovery has not found yet. */
#define SOON (200 * USEC_PER_MSEC)

struct api {
    struct api_config config;
    unsigned open_calls;    /* without `alone` */
    struct api_call *alone; /* calls that go on without their client */
    bool old_path_logged;   /* one warning in the life of the daemon */
    uint64_t requests;      /* numbers their ids */
    bool had_large;         /* a large body since api_tick() */
};

struct api *api_new(const struct api_config *config)
{
    struct api *a = xnew0(struct api);

    a->config = *config;
    return a;
}

void api_free(struct api *a)
{
    port_pool_close();
    free(a);
}

unsigned api_open_calls(const struct api *a)
{
    return a->open_calls;
}

/* Freed documents leave the heap in pieces. Without this the daemon would keep tens of megabytes
 * after a single command of many words. */
void api_tick(struct api *a)
{
    if (a->had_large)
        malloc_trim(0);
    a->had_large = false;
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
    if (c->on_gone)
        c->on_gone(c->gone_arg);
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

bool call_go_on(struct api_call *c)
{
    if (c->alone)
        return false;
    c->alone = true;
    c->next_alone = c->api->alone;
    c->api->alone = c;
    c->api->open_calls--;
    return true;
}

static void api_call_leave(struct api_call *c)
{
    struct api_call **at = &c->api->alone;

    if (!c->alone) {
        c->api->open_calls--;
        return;
    }
    while (*at != c)
        at = &(*at)->next_alone;
    *at = c->next_alone;
}

void api_end_calls(struct api *a)
{
    while (a->alone)
        a->alone->on_gone(a->alone->gone_arg);
}

static void api_call_free(struct api_call *c)
{
    api_call_leave(c);
    idempotency_done(c);
    json_decref(c->body);
    free(c->path);
    free(c->successor);
    free(c);
}

/* Header lines about the request: that its path is old, or that it was sent before. The caller
 * frees. */
static char *api_remarks(const struct api_call *c)
{
    _cleanup_free_ char *old =
        c->successor ? xasprintf("Deprecation: true\r\nLink: <%s>; rel=\"successor-version\"\r\n",
                                 c->successor)
                     : NULL;

    return xasprintf("%s%s", old ? old : "",
                     idempotency_is_repeat(c) ? "Idempotency-Replayed: true\r\n" : "");
}

static void api_reply_text_with(struct api_call *c, int status, const char *json, const char *extra)
{
    _cleanup_free_ char *remarks = api_remarks(c);
    _cleanup_free_ char *lines = xasprintf("%s%s", remarks, extra);
    const struct http_answer answer = {
        .status = status, .content_type = "application/json", .extra = lines};

    idempotency_answered(c, status, json);
    if (c->req)
        http_reply_with(c->req, &answer, json, strlen(json));
    api_call_free(c);
}

void call_reply_text(struct api_call *c, int status, const char *json)
{
    api_reply_text_with(c, status, json, "");
}

void call_reply_with(struct api_call *c, int status, json_t *doc, const char *extra)
{
    _cleanup_free_ char *text = json_to_text(doc, false);

    json_decref(doc);
    api_reply_text_with(c, status, text, extra);
}

void call_reply(struct api_call *c, int status, json_t *doc)
{
    call_reply_with(c, status, doc, "");
}

void call_reply_err(struct api_call *c, const struct err *err)
{
    call_reply_status(c, err_code_http(err->code), err);
}

void call_answered(void *arg, const struct err *err, const char *json)
{
    struct api_call *c = arg;

    if (err)
        call_reply_err(c, err);
    else
        call_reply_text(c, 200, json);
}

static void api_reply_status_with(struct api_call *c, int status, const char *extra,
                                  const struct err *err)
{
    _cleanup_free_ char *remarks = api_remarks(c);
    _cleanup_free_ char *lines = xasprintf("%s%s", remarks, extra);

    idempotency_failed(c);
    if (c->req)
        http_reply_err_status(c->req, status, lines, err);
    api_call_free(c);
}

void call_reply_status(struct api_call *c, int status, const struct err *err)
{
    api_reply_status_with(c, status, "", err);
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

/* Returns 1 and the value, or 0 if the key is absent. */
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

int call_query_engine(const struct api_call *c, char **ret, struct err *err)
{
    int r = call_query_text(c, "engine", ret, err);

    if (r < 0 || !*ret || manager_engine(c->manager, *ret, err))
        return r;
    return err_wrap(err, "query parameter 'engine'");
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

static void api_reply_no_route(struct api_call *c)
{
    _cleanup_free_ char *allowed = routes_allowed(c->path), *extra = NULL;
    _cleanup_err_ struct err err = ERR_INIT;
    const char *method = http_req_head(c->req)->method;

    if (allowed) {
        err_set(&err, ERR_INVALID, "%s: method %s is not supported", http_req_path(c->req), method);
        extra = xasprintf("Allow: %s\r\n", allowed);
        api_reply_status_with(c, 405, extra, &err);
        return;
    }
    err_set(&err, ERR_NOT_FOUND, "no such route: %s", http_req_path(c->req));
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
        err_set(err, ERR_INVALID, "%s %s: a body is not allowed", c->route->method,
                http_req_path(c->req));
        return 400;
    }
    if (!api_is_json_type(http_field_get(http_req_head(c->req), "content-type"))) {
        err_set(err, ERR_INVALID, "request body: Content-Type must be application/json");
        return 415;
    }
    c->api->had_large |= len > BODY_LARGE;
    if (len > BODY_SMALL && json_check_values("request body", text, len, BODY_VALUES_MAX, err) < 0)
        return 413;
    if (json_parse("request body", text, len, &c->body, err) < 0)
        return 400;
    http_req_drop_body(c->req);
    if (json_is_object(c->body))
        return 0;
    err_set(err, ERR_INVALID, "request body: must be a JSON object");
    return 400;
}

static int api_check_websocket(struct api_call *c, struct err *err)
{
    const struct http_head *head = http_req_head(c->req);
    int r = websocket_check_request(head, err);

    if (r == -ERR_UNSUPPORTED || (r < 0 && !head->upgrade))
        return 426;
    return r < 0 ? 400 : 0;
}

/* 0, or the status of the refusal. */
static int api_check_upgrade(struct api_call *c, struct err *err)
{
    const char *up = http_req_head(c->req)->upgrade;

    if (c->route->flags & ROUTE_WEBSOCKET)
        return api_check_websocket(c, err);
    if (c->route->flags & (ROUTE_UPGRADE | ROUTE_TUNNEL) && !call_wants_upgrade(c)) {
        err_set(err, ERR_INVALID, "%s: needs the headers 'Connection: Upgrade' and 'Upgrade: %s'",
                http_req_path(c->req), api_route_protocol(c->route));
        return 426;
    }
    if (c->route->flags & ROUTE_MAY_UPGRADE && up && !call_wants_upgrade(c)) {
        err_set(err, ERR_INVALID, "header 'Upgrade': unknown protocol (supported: %s)",
                FRAME_PROTOCOL);
        return 400;
    }
    return 0;
}

/* For what no page may use. 0, or the status of the refusal. */
static int api_refuse_page(const struct http_req *req, struct err *err)
{
    if (http_req_is_local(req) || !auth_is_page(http_req_head(req)))
        return 0;
    err_set(err, ERR_UNAUTHORIZED, "%s: needs the token, not a session or a ticket",
            http_req_head(req)->target);
    err_hint(err, "Send 'Authorization: Bearer TOKEN'.");
    return 401;
}

static void api_run_handler(void *arg)
{
    struct api_call *c = arg;

    if (!c->req && c->route->flags & ROUTE_LIVE)
        api_call_free(c);
    else if (idempotency_admit(c))
        c->route->handler(c);
}

bool api_wants_raw_target(void *arg _unused_, const struct http_head *head)
{
    struct port_route route;
    struct port_host host;

    return port_host_parse(http_field_get(head, "Host"), &host) || port_proxy_wants(head, &route);
}

bool api_wants_stream(void *arg _unused_, const struct http_head *head, const char *path)
{
    const struct route *r = path ? routes_find(head->method, path) : NULL;

    return !path || (r && r->flags & ROUTE_STREAM);
}

/* A request for the old name of a path continues with the new name. */
static void api_follow_rename(struct api_call *c)
{
    const struct route_rename *renamed = routes_renamed(c->path);

    if (!renamed)
        return;
    if (!c->api->old_path_logged)
        log_warn("API path %s is deprecated, use %s (the next version removes the old path; "
                 "logged once)",
                 renamed->old, renamed->now);
    c->api->old_path_logged = true;
    c->successor = xasprintf("%s%s", renamed->now, c->path + strlen(renamed->old));
    free(c->path);
    c->path = xstrdup(c->successor);
}

static bool api_is_request_id(const char *s)
{
    static const char allowed[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
    size_t len = s ? strlen(s) : 0;

    return len > 0 && len < HTTP_ID_SIZE && strspn(s, allowed) == len;
}

/* The path is part of the line, the query is not: it may hold a ticket. */
void api_identify(void *arg, const struct http_req *req, char *ret)
{
    const char *id = req ? http_field_get(http_req_head(req), "x-request-id") : NULL;
    const char *path = req ? http_req_path(req) : NULL;
    struct api *a = arg;

    if (api_is_request_id(id))
        snprintf(ret, HTTP_ID_SIZE, "%s", id);
    else
        snprintf(ret, HTTP_ID_SIZE, "%d-%llu", (int)getpid(), (unsigned long long)++a->requests);
    if (req)
        log_debug("request %s: %s %s", ret, http_req_head(req)->method, path ? path : "to a port");
}

static int api_append_object(struct buf *b, const char *what, const char *name)
{
    if (buf_appendf(b, "%s\"%s\":\"", b->len ? "," : "", what) < 0 || text_escape_json(b, name) < 0)
        return -ERR_LIMIT;
    return buf_append_str(b, "\"");
}

static char *api_describe_port(const struct http_head *head)
{
    struct port_route route;

    return port_proxy_wants(head, &route)
               ? xasprintf("\"sandbox\":\"%s\",\"port\":\"%u\"", route.name, route.port)
               : NULL;
}

/* The request may have left its call, so its path is read again. */
char *api_describe(const struct http_req *req)
{
    static const struct {
        const char *key, *what;
    } in_query[] = {{"path", "path"}, {"name", "image"}};
    const char *given = http_req_path(req);
    const struct route *route = given ? routes_find(http_req_head(req)->method, given) : NULL;
    _cleanup_free_ char *path = xstrdup(given ? given : "");
    const char *params[CALL_PARAMS_MAX] = {NULL};
    _cleanup_buf_ struct buf b = BUF_INIT(OBJECTS_MAX);

    if (!given)
        return api_describe_port(http_req_head(req));
    if (!route)
        return NULL;
    routes_split(route, path, params, CALL_PARAMS_MAX);
    for (size_t i = 0; i < CALL_PARAMS_MAX && params[i]; i++)
        if (api_append_object(&b, routes_param_name(route, i), params[i]) < 0)
            return NULL;
    for (size_t i = 0; i < ARRAY_SIZE(in_query) && http_req_query(req); i++) {
        _cleanup_free_ char *value = NULL;

        if (http_query_get(http_req_query(req), in_query[i].key, &value, NULL) >= 0 && value &&
            api_append_object(&b, in_query[i].what, value) < 0)
            return NULL;
    }
    return b.len ? xstrdup(buf_data(&b)) : NULL;
}

static void api_start_proxy(struct api *a, struct http_req *req)
{
    _cleanup_err_ struct err err = ERR_INIT;
    const struct http_head *head = http_req_head(req);
    struct port_route route;
    struct port_host host;

    if (port_host_parse(http_field_get(head, "Host"), &host)) {
        port_origin_start(a, req, &host);
        return;
    }
    if (!port_proxy_wants(head, &route))
        return;
    if (api_refuse_page(req, &err))
        http_reply_err(req, NULL, &err);
    else
        port_proxy_start(a, req, &route);
}

void api_on_request(void *arg, struct http_req *req)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct api_call *c;
    int status;

    if (!http_req_path(req)) {
        api_start_proxy(arg, req);
        return;
    }
    c = api_call_new(arg, req);
    api_follow_rename(c);
    c->route = routes_find(http_req_head(req)->method, c->path);
    if (!c->route) {
        api_reply_no_route(c);
        return;
    }
    routes_split(c->route, c->path, c->params, CALL_PARAMS_MAX);
    status = routes_admits_pages(c->route) ? 0 : api_refuse_page(req, &err);
    if (!status)
        status = routes_check_query(c->route, http_req_query(req), &err) < 0 ? 400 : 0;
    if (!status)
        status = api_check_upgrade(c, &err);
    if (!status)
        status = idempotency_read(c, &err);
    if (!status)
        status = api_read_body(c, &err);
    if (status == 426 && c->route->flags & ROUTE_WEBSOCKET)
        api_reply_status_with(c, status, "Sec-WebSocket-Version: 13\r\n", &err);
    else if (status)
        call_reply_status(c, status, &err);
    else if ((c->route->flags & ROUTE_FRESH_STATE || c->key) && !manager_is_recovered(c->manager))
        manager_when_recovered(c->manager, c->route->flags & ROUTE_SOON ? SOON : 0, api_run_handler,
                               c);
    else
        api_run_handler(c);
}

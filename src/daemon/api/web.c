/*
 * Sessions and tickets of web pages. web-access.h keeps them, auth.h checks them.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/api/auth.h"
#include "daemon/api/call.h"
#include "daemon/api/routes.h"
#include "daemon/api/web-access.h"
#include "lib/base/cleanup.h"

static struct auth *web_auth(struct api_call *c, struct err *err)
{
    const struct api_config *s = api_settings(c->api);
    struct auth *a = s->auth(s->arg);

    if (!a) {
        err_set(err, ERR_UNSUPPORTED, "web pages: the daemon does not listen on TCP");
        err_hint(err, "Start it with --listen 127.0.0.1:7070, or set http.listen.");
    }
    return a;
}

/* When something that lives so long from now on ends. */
static json_t *web_end(uint64_t life)
{
    return json_from_time(time_wall() + life);
}

/* A page that has a session must not make it longer than the token's owner wanted. */
static int web_check_token(const struct api_call *c, struct err *err)
{
    if (!http_req_is_local(c->req) && !auth_is_page(http_req_head(c->req)))
        return 0;
    err_set(err, ERR_UNAUTHORIZED, "a session begins with the token, over TCP");
    err_hint(err, "Send 'Authorization: Bearer TOKEN'. Run 'ripcord token' to print it.");
    return -ERR_UNAUTHORIZED;
}

static int web_begin(struct api_call *c, char **ret_cookie, struct err *err)
{
    struct auth *a = web_auth(c, err);
    int r;

    if (!a)
        return -ERR_UNSUPPORTED;
    r = json_read(c->body, NULL, NULL, 0, err);
    if (r < 0)
        return r;
    r = web_check_token(c, err);
    return r < 0 ? r : auth_begin_session(a, ret_cookie, err);
}

void handle_web_session_begin(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    char *cookie = NULL;

    if (web_begin(c, &cookie, &err) < 0) {
        call_reply_err(c, &err);
        return;
    }
    call_reply_with(
        c, 201, json_pack("{s:{s:o}}", "session", "expires_at", web_end(WEB_SESSION_LIFE)), cookie);
    explicit_bzero(cookie, strlen(cookie));
    free(cookie);
}

void handle_web_session_end(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *cookie = NULL;
    struct auth *a = web_auth(c, &err);
    bool ended;

    if (!a) {
        call_reply_err(c, &err);
        return;
    }
    ended = auth_end_session(a, http_req_head(c->req), &cookie);
    call_reply_with(c, 200, json_pack("{s:b}", "ended", ended), cookie);
}

/* ---- tickets ---- */

static int web_check_path(const char *path, struct err *err)
{
    const struct route *route = path ? routes_find("GET", path) : NULL;

    if (!path)
        return err_set(err, ERR_INVALID, "field 'path' is missing");
    if (strlen(path) >= WEB_PATH_MAX)
        return err_set(err, ERR_INVALID, "field 'path': longer than %d bytes", WEB_PATH_MAX - 1);
    if (route && route->flags & ROUTE_WEBSOCKET && routes_admits_pages(route))
        return 0;
    err_set(err, ERR_INVALID, "field 'path': no WebSocket at '%.100s'", path);
    return err_hint(err, "A ticket is for a path such as /v1/sandboxes/NAME/execs/ID/attach, "
                         "without its query.");
}

static int web_new_ticket(struct api_call *c, const char **ret_path, struct api_token *ret,
                          struct err *err)
{
    const struct json_field fields[] = {{"path", JSON_FIELD_STRING, ret_path}};
    struct auth *a = web_auth(c, err);
    int r;

    if (!a)
        return -ERR_UNSUPPORTED;
    r = json_read(c->body, NULL, fields, ARRAY_SIZE(fields), err);
    if (r < 0)
        return r;
    r = web_check_path(*ret_path, err);
    return r < 0 ? r : auth_new_ticket(a, *ret_path, ret, err);
}

void handle_web_ticket(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_token_ struct api_token ticket = {0};
    const char *path = NULL;

    if (web_new_ticket(c, &path, &ticket, &err) < 0)
        call_reply_err(c, &err);
    else
        call_reply_with(c, 201,
                        json_pack("{s:s, s:s, s:o}", "ticket", ticket.text, "path", path,
                                  "expires_at", web_end(WEB_TICKET_LIFE)),
                        "Cache-Control: no-store\r\n");
}

#include "daemon/api/port-origin.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/api/auth.h"
#include "daemon/api/call.h"
#include "daemon/api/port-link.h"
#include "daemon/api/port-proxy.h"
#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

#define OPEN_PATH "/.ripcord/open/"
#define LINK_LIFE (12 * 3600 * USEC_PER_SEC)
#define LINK_LIFE_MAX (7 * 24 * 3600 * USEC_PER_SEC)

static uint64_t port_origin_now(void)
{
    return time_wall() / USEC_PER_SEC;
}

/* Plain text: nothing of the request is in it, and no browser runs it. */
static void port_origin_page(struct http_req *req, int status, const char *text)
{
    const struct http_answer a = {
        .status = status,
        .content_type = "text/plain; charset=utf-8",
        .extra = "Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"};

    http_reply_with(req, &a, text, strlen(text));
}

/* ---- the first visit ---- */

static void port_origin_open(struct http_req *req, const char *key, const struct port_host *host)
{
    const char *given = http_req_head(req)->target + sizeof(OPEN_PATH) - 1;
    char text[PORT_LINK_SIZE], cookie[PORT_LINK_SIZE];
    _cleanup_free_ char *fields = NULL;
    uint64_t now = port_origin_now();
    struct port_grant grant;

    snprintf(text, sizeof(text), "%.*s", (int)MIN(strcspn(given, "?"), sizeof(text) - 1), given);
    if (!port_link_check(key, PORT_LINK_URL, host, now, text, &grant)) {
        port_origin_page(req, 403,
                         "This link has expired, or is not complete.\n"
                         "Make a new one: ripcord port NAME PORT --url\n");
        return;
    }
    port_link_sign(key, PORT_LINK_COOKIE, host, &grant, cookie);
    fields = xasprintf("Set-Cookie: " PORT_COOKIE "=%s; Path=/; HttpOnly; SameSite=Lax; "
                       "Max-Age=%llu\r\nLocation: /\r\nCache-Control: no-store\r\n"
                       "Referrer-Policy: no-referrer\r\n",
                       cookie, (unsigned long long)(grant.expires - now));
    http_reply_with(
        req, &(struct http_answer){.status = 303, .reason = "See Other", .extra = fields}, NULL, 0);
}

/* ---- later requests ---- */

struct port_visitor {
    const char *key;
    const struct port_host *host;
    struct port_grant grant;
};

static bool port_origin_is_cookie(void *arg, const char *value)
{
    struct port_visitor *v = arg;

    return port_link_check(v->key, PORT_LINK_COOKIE, v->host, port_origin_now(), value, &v->grant);
}

/* SameSite keeps the cookie from requests of other sites, except when a person follows a link. This
 * holds also for browsers that do not know it, and for pages of other ports and sandboxes. */
static bool port_origin_is_own_page(const struct http_head *head)
{
    static const char scheme[] = "http://";
    const char *origin = http_field_get(head, "Origin"), *host = http_field_get(head, "Host");

    return !origin || (strncmp(origin, scheme, sizeof(scheme) - 1) == 0 &&
                       strcasecmp(origin + sizeof(scheme) - 1, host) == 0);
}

static void port_origin_visit(struct api *a, struct http_req *req, const struct port_visitor *v)
{
    const struct sandbox *sb = manager_find_id(api_settings(a)->manager, v->host->id);
    struct port_route route = {.place = PORT_AS_ORIGIN,
                               .port = v->host->port,
                               .wake = v->grant.wake,
                               .target = http_req_head(req)->target};

    if (!sb) {
        port_origin_page(req, 404, "The sandbox of this link does not exist any more.\n");
        return;
    }
    snprintf(route.name, sizeof(route.name), "%s", sb->name);
    port_proxy_start(a, req, &route);
}

void port_origin_start(struct api *a, struct http_req *req, const struct port_host *host)
{
    const struct api_config *s = api_settings(a);
    struct auth *auth = http_req_is_local(req) ? NULL : s->auth(s->arg);
    struct port_visitor v = {.key = auth ? auth_key(auth) : NULL, .host = host};
    const struct http_head *head = http_req_head(req);

    if (!v.key)
        port_origin_page(req, 421, "Ports of sandboxes have pages only on the TCP address.\n");
    else if (strncmp(head->target, OPEN_PATH, sizeof(OPEN_PATH) - 1) == 0)
        port_origin_open(req, v.key, host);
    else if (!http_cookie_any(head, PORT_COOKIE, port_origin_is_cookie, &v))
        port_origin_page(req, 403,
                         "This port of a sandbox is closed to this browser.\n"
                         "Open the link that this command prints: "
                         "ripcord port NAME PORT --url\n");
    else if (!port_origin_is_own_page(head))
        port_origin_page(req, 403, "Requests of other pages are refused here.\n");
    else
        port_origin_visit(a, req, &v);
}

/* ---- POST …/links ---- */

struct port_link_request {
    uint64_t port, life_ms;
    bool wake;
};

static int port_link_read(const struct api_call *c, struct port_link_request *ret, struct err *err)
{
    const struct json_field fields[] = {{"port", JSON_FIELD_U64, &ret->port},
                                        {"life_ms", JSON_FIELD_U64, &ret->life_ms},
                                        {"wake", JSON_FIELD_BOOL, &ret->wake}};
    int r = json_read(c->body, NULL, fields, ARRAY_SIZE(fields), err);

    if (r < 0)
        return r;
    if (!ret->port)
        return err_set(err, ERR_INVALID, "field 'port' is missing");
    if (ret->port > UINT16_MAX)
        return err_set(err, ERR_INVALID, "field 'port': must be between 1 and 65535");
    return parse_check_range("field 'life_ms'", ret->life_ms, 1000, LINK_LIFE_MAX / USEC_PER_MSEC,
                             PARSE_MSEC, err);
}

static const char *port_link_key(const struct api_call *c, struct err *err)
{
    const struct api_config *s = api_settings(c->api);
    struct auth *auth = s->auth(s->arg);
    const char *key = auth ? auth_key(auth) : NULL;

    if (!key) {
        err_set(err, ERR_UNSUPPORTED, "links to ports: the daemon does not listen on TCP");
        err_hint(err, "Start it with --listen 127.0.0.1:7070, or set http.listen.");
    }
    return key;
}

static char *port_link_url(const struct api_call *c, const char *key, const struct port_host *host,
                           const struct port_grant *grant)
{
    const struct api_config *s = api_settings(c->api);
    char text[PORT_LINK_SIZE];

    port_link_sign(key, PORT_LINK_URL, host, grant, text);
    return xasprintf("http://%u-%s.localhost%s" OPEN_PATH "%s", host->port, host->id,
                     strrchr(s->listen(s->arg), ':'), text);
}

void handle_port_link(struct api_call *c)
{
    struct port_link_request q = {.life_ms = LINK_LIFE / USEC_PER_MSEC};
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *url = NULL;
    const struct sandbox *sb;
    struct port_grant grant;
    struct port_host host;
    const char *key = NULL;

    if (port_link_read(c, &q, &err) < 0 || !(key = port_link_key(c, &err))) {
        call_reply_err(c, &err);
        return;
    }
    sb = call_sandbox(c);
    if (!sb)
        return;
    host.port = (uint16_t)q.port;
    memcpy(host.id, sb->id, sizeof(host.id));
    grant.wake = q.wake;
    grant.expires = port_origin_now() + (q.life_ms + 999) / 1000;
    url = port_link_url(c, key, &host, &grant);
    call_reply_with(c, 201,
                    json_pack("{s:{s:s, s:i, s:b, s:o}}", "link", "url", url, "port", (int)q.port,
                              "wake", q.wake, "expires_at",
                              json_from_time(grant.expires * USEC_PER_SEC)),
                    "Cache-Control: no-store\r\n");
}

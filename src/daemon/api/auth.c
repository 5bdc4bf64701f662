/*
 * Every request checks the token's file (one stat), so a revoked token is refused at once.
 * Connections that are already open are closed by the owner, when auth_tick() reports the change.
 *
 * Nobody can guess 256 bits at any speed. The limit is there for the noise: each refusal closes the
 * connection, and the log gets one line per second.
 */
#include "daemon/api/auth.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "daemon/api/port-link.h"
#include "daemon/api/web-access.h"
#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

#define TOKEN_MISSING "requests over TCP need a token"

enum { TRIES_MAX = 10 }; /* refusals in a burst; then one more each second */

struct auth {
    struct auth_config config; /* without the address */
    char **hosts;              /* owned: accepted values of the Host header */
    char *port;                /* owned: ":7070" */
    char *cookie;              /* owned: the name of the cookie of sessions */
    struct web_access *web;    /* sessions and tickets that the token has led to */
    struct api_token token;
    uint64_t stamp; /* of the token's file when it was read; 0: no token, refuse everything */
    bool changed;   /* since the last auth_tick() */
    uint64_t tries_at;
    unsigned tries_left, tries_refused;
};

DEFINE_CLEANUP(struct auth *, auth_free);

static int auth_refuse_page(const char *field, struct err *err)
{
    err_set(err, ERR_DENIED, "requests from web pages are refused (header '%s')", field);
    return 403;
}

int auth_unix(void *arg _unused_, const struct http_head *head, struct err *err)
{
    const char *site = http_field_get(head, "sec-fetch-site");

    if (http_field_get(head, "origin"))
        return auth_refuse_page("Origin", err);
    return site && !STREQ(site, "none") ? auth_refuse_page("Sec-Fetch-Site", err) : 0;
}

/* ---- TCP ---- */

/* Browsers leave the port out of Host if it is 80. */
static void auth_add_host(struct auth *a, const char *name)
{
    const char *colon = strrchr(name, ':');

    if (colon && !strchr(colon, ']')) { /* it has a port: this is not a colon within [::1] */
        strv_add(&a->hosts, name);
        return;
    }
    strv_push(&a->hosts, xasprintf("%s%s", name, a->port));
    if (STREQ(a->port, ":80"))
        strv_add(&a->hosts, name);
}

static int auth_check_host(const struct auth *a, const char *host, struct err *err)
{
    for (char **h = a->hosts; host && h && *h; h++)
        if (strcasecmp(*h, host) == 0)
            return 0;
    if (!GUARD("host"))
        return 0;
    err_set(err, ERR_DENIED, "host '%.100s' is not accepted here", host ? host : "");
    err_hint(err, "Use the address that the daemon listens on, or add the host name to http.hosts "
                  "in ripcord.yaml.");
    return 421;
}

/* Pages that this daemon served may ask: their origin is the requested address itself. */
static int auth_check_origin(const struct http_head *head, const char *host, struct err *err)
{
    static const char scheme[] = "http://";
    const char *site = http_field_get(head, "sec-fetch-site");
    const char *origin = http_field_get(head, "origin");

    if (origin &&
        (strncmp(origin, scheme, sizeof(scheme) - 1) != 0 ||
         strcasecmp(origin + sizeof(scheme) - 1, host) != 0) &&
        GUARD("origin"))
        return auth_refuse_page("Origin", err);
    if (site && !STREQ(site, "none") && !STREQ(site, "same-origin") && GUARD("fetch site"))
        return auth_refuse_page("Sec-Fetch-Site", err);
    return 0;
}

static void auth_check_file(struct auth *a)
{
    uint64_t stamp = token_stamp(a->config.state_dir);
    struct api_token old = a->token;

    if (stamp == a->stamp)
        return;
    a->stamp = token_load(a->config.state_dir, &a->token, NULL) < 0 ? 0 : stamp;
    if (!a->stamp || !token_matches(&a->token, old.text)) {
        a->changed = true;
        web_access_drop(a->web);
    }
    token_done(&old);
}

/* Each second allows one more refusal, up to TRIES_MAX. */
static void auth_refill(struct auth *a)
{
    uint64_t now = time_mono(), more = (now - a->tries_at) / USEC_PER_SEC;

    if (!more)
        return;
    a->tries_at += more * USEC_PER_SEC;
    a->tries_left = (unsigned)MIN(a->tries_left + more, (uint64_t)TRIES_MAX);
    if (a->tries_refused && a->config.on_refused)
        a->config.on_refused(a->config.arg, a->tries_refused);
    a->tries_refused = 0;
}

bool auth_tick(struct auth *a)
{
    bool changed;

    auth_refill(a);
    auth_check_file(a);
    changed = a->changed;
    a->changed = false;
    return changed;
}

static int auth_refuse_try(struct auth *a, const char *why, struct err *err)
{
    auth_refill(a);
    a->tries_refused++;
    if (!a->tries_left) {
        err_set(err, ERR_LIMIT, "too many requests without a valid token");
        err_hint(err, "Try again in a second, with the token.");
        return 429;
    }
    a->tries_left--;
    err_set(err, ERR_UNAUTHORIZED, "%s", why);
    err_hint(err, "Send 'Authorization: Bearer TOKEN', or set RIPCORD_TOKEN for the command line. "
                  "Run 'ripcord token' on the daemon's machine to print it.");
    return 401;
}

static bool auth_has_token(const struct auth *a, const char *given)
{
    static const char scheme[] = "Bearer ";

    return a->stamp && strncasecmp(given, scheme, sizeof(scheme) - 1) == 0 &&
           token_matches(&a->token, given + sizeof(scheme) - 1);
}

/* ---- web pages ---- */

/* A ticket is for the handshake of a WebSocket. NULL: the request has none. */
static char *auth_ticket_of(const struct http_head *head, const char *query)
{
    bool socket =
        head->upgrade && strcasecmp(head->upgrade, "websocket") == 0 && STREQ(head->method, "GET");
    char *ticket = NULL;

    if (query && (socket || !GUARD("ticket for WebSockets")))
        (void)!http_query_get(query, "ticket", &ticket, NULL);
    return ticket;
}

static bool auth_is_session(void *arg, const char *value)
{
    struct auth *a = arg;

    return web_session_is(a->web, time_mono(), value);
}

static bool auth_only_reads(const struct http_head *head)
{
    return (STREQ(head->method, "GET") || STREQ(head->method, "HEAD")) && !head->upgrade;
}

/*
 * Browsers send a cookie by themselves, also with what another page makes them send. SameSite keeps
 * that to pages of the same host, but on any port. So the page must name itself: where something
 * changes, by Origin, which auth_check_origin() has compared.
 */
static int auth_check_session(struct auth *a, const struct http_head *head, const char *path,
                              struct err *err)
{
    if (strncmp(path, "/v1/", 4) != 0 || !http_cookie_any(head, a->cookie, auth_is_session, a))
        return auth_refuse_try(a, TOKEN_MISSING, err);
    if (auth_only_reads(head) || http_field_get(head, "origin") || !GUARD("cookie origin"))
        return 0;
    err_set(err, ERR_DENIED, "header 'Origin': missing (a session is for web pages)");
    err_hint(err, "Programs send 'Authorization: Bearer TOKEN'.");
    return 403;
}

static int auth_check_page(struct auth *a, const struct http_head *head, struct err *err)
{
    _cleanup_free_ char *target = xstrdup(head->target), *ticket = NULL;
    char *path, *query;

    if (!a->stamp || http_target_split(target, &path, &query, NULL) < 0)
        return auth_refuse_try(a, TOKEN_MISSING, err);
    ticket = auth_ticket_of(head, query);
    if (!ticket)
        return auth_check_session(a, head, path, err);
    return web_ticket_use(a->web, time_mono(), path, ticket)
               ? 0
               : auth_refuse_try(a, "the ticket is not valid", err);
}

bool auth_is_page(const struct http_head *head)
{
    return !http_field_get(head, "authorization");
}

int auth_begin_session(struct auth *a, char **ret_cookie, struct err *err)
{
    _cleanup_token_ struct api_token secret = {0};
    int r = web_session_begin(a->web, time_mono(), &secret, err);

    if (r < 0)
        return r;
    *ret_cookie = xasprintf("Set-Cookie: %s=%s; Path=/; HttpOnly; SameSite=Strict\r\n", a->cookie,
                            secret.text);
    return 0;
}

static bool auth_end_this(void *arg, const char *value)
{
    struct auth *a = arg;

    return web_session_end(a->web, value);
}

bool auth_end_session(struct auth *a, const struct http_head *head, char **ret_cookie)
{
    *ret_cookie =
        xasprintf("Set-Cookie: %s=; Path=/; HttpOnly; SameSite=Strict; Max-Age=0\r\n", a->cookie);
    return http_cookie_any(head, a->cookie, auth_end_this, a);
}

int auth_new_ticket(struct auth *a, const char *path, struct api_token *ret, struct err *err)
{
    return web_ticket_new(a->web, time_mono(), path, ret, err);
}

const char *auth_key(struct auth *a)
{
    auth_check_file(a);
    return a->stamp ? a->token.text : NULL;
}

int auth_tcp(void *auth, const struct http_head *head, struct err *err)
{
    const char *host = http_field_get(head, "host");
    const char *given = http_field_get(head, "authorization");
    struct port_host origin;
    struct auth *a = auth;
    int status;

    if (port_host_parse(host, &origin))
        return 0;
    status = auth_check_host(a, host, err);
    if (!status)
        status = auth_check_origin(head, host, err);
    if (status)
        return status;
    auth_check_file(a);
    if (!given)
        return auth_check_page(a, head, err);
    return auth_has_token(a, given) ? 0 : auth_refuse_try(a, "invalid token", err);
}

int auth_new(const struct auth_config *config, struct auth **ret, struct err *err)
{
    _cleanup_(auth_freep) struct auth *a = xnew0(struct auth);
    int r;

    a->config = *config;
    a->config.address = NULL;
    a->port = xstrdup(strrchr(config->address, ':'));
    a->cookie = xasprintf("ripcord_session_%s", a->port + 1);
    a->web = web_access_new();
    a->tries_left = TRIES_MAX;
    a->tries_at = time_mono();
    auth_add_host(a, "localhost");
    auth_add_host(a, "127.0.0.1");
    auth_add_host(a, "[::1]");
    auth_add_host(a, config->address);
    for (char *const *name = config->names; name && *name; name++)
        auth_add_host(a, *name);
    /* The stamp is taken before the token is read: a change in between is then noticed later. */
    a->stamp = token_stamp(config->state_dir);
    r = token_ensure(config->state_dir, &a->token, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(a);
    return 0;
}

void auth_free(struct auth *a)
{
    if (!a)
        return;
    strv_free(a->hosts);
    web_access_free(a->web);
    token_done(&a->token);
    free(a->cookie);
    free(a->port);
    free(a);
}

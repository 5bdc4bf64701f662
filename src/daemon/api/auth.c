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

#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { TRIES_MAX = 10 }; /* refusals in a burst; then one more each second */

struct auth {
    struct auth_config config; /* without the address */
    char **hosts;              /* owned: accepted values of the Host header */
    char *port;                /* owned: ":7070" */
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

    if (origin && (strncmp(origin, scheme, sizeof(scheme) - 1) != 0 ||
                   strcasecmp(origin + sizeof(scheme) - 1, host) != 0))
        return auth_refuse_page("Origin", err);
    if (site && !STREQ(site, "none") && !STREQ(site, "same-origin"))
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
    a->changed |= !a->stamp || !token_matches(&a->token, old.text);
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

static int auth_refuse_try(struct auth *a, bool given, struct err *err)
{
    auth_refill(a);
    a->tries_refused++;
    if (!a->tries_left) {
        err_set(err, ERR_LIMIT, "too many requests without a valid token");
        err_hint(err, "Try again in a second, with the token.");
        return 429;
    }
    a->tries_left--;
    err_set(err, ERR_UNAUTHORIZED, given ? "invalid token" : "requests over TCP need a token");
    err_hint(err, "Send 'Authorization: Bearer TOKEN', or set RIPCORD_TOKEN for the command line. "
                  "Run 'ripcord token' on the daemon's machine to print it.");
    return 401;
}

int auth_tcp(void *auth, const struct http_head *head, struct err *err)
{
    static const char scheme[] = "Bearer ";
    const char *host = http_field_get(head, "host");
    const char *given = http_field_get(head, "authorization");
    struct auth *a = auth;
    int status;

    status = auth_check_host(a, host, err);
    if (!status)
        status = auth_check_origin(head, host, err);
    if (status)
        return status;
    auth_check_file(a);
    if (a->stamp && given && strncasecmp(given, scheme, sizeof(scheme) - 1) == 0 &&
        token_matches(&a->token, given + sizeof(scheme) - 1))
        return 0;
    return auth_refuse_try(a, given, err);
}

int auth_new(const struct auth_config *config, struct auth **ret, struct err *err)
{
    _cleanup_(auth_freep) struct auth *a = xnew0(struct auth);
    int r;

    a->config = *config;
    a->config.address = NULL;
    a->port = xstrdup(strrchr(config->address, ':'));
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
    token_done(&a->token);
    free(a->port);
    free(a);
}

/*
 * The token's file is looked at anew (one stat) with every request, so that a token that was taken
 * back opens nothing from that moment on; those who are inside already are for the owner's timer.
 *
 * Guessing 256 bits is hopeless at any speed. What is limited is the noise that somebody makes who
 * tries: connections end with each refusal, and the log has one line a second.
 */
#include "daemon/api/auth.h"

#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

enum { TRIES_MAX = 10 }; /* at once; then one a second */

struct auth {
    struct auth_config config; /* without the address */
    char **hosts;              /* owned: what a Host field may say */
    char *port;                /* owned: ":7070" */
    struct api_token token;
    uint64_t stamp; /* of the file that it was read from; 0: it opens nothing */
    bool changed;   /* since the last auth_tick() */
    uint64_t tries_at;
    unsigned tries_left, tries_refused;
};

static int auth_refuse_page(const char *field, struct err *err)
{
    err_set(err, ERR_DENIED, "requests of web pages are refused ('%s')", field);
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

static bool auth_has_port(const char *host)
{
    const char *colon = strrchr(host, ':');

    return colon && !strchr(colon, ']');
}

/* As a browser writes it: without the port when it is HTTP's own. */
static void auth_add_host(struct auth *g, const char *name)
{
    if (auth_has_port(name)) {
        strv_add(&g->hosts, name);
        return;
    }
    strv_push(&g->hosts, xasprintf("%s%s", name, g->port));
    if (STREQ(g->port, ":80"))
        strv_add(&g->hosts, name);
}

static bool auth_is_our_host(const struct auth *g, const char *host)
{
    for (char **h = g->hosts; h && *h; h++)
        if (strcasecmp(*h, host) == 0)
            return true;
    return false;
}

static int auth_check_host(const struct auth *g, const char *host, struct err *err)
{
    if (host && auth_is_our_host(g, host))
        return 0;
    err_set(err, ERR_DENIED, "this daemon is not '%.100s'", host ? host : "");
    err_hint(err, "Use the address that it listens on; http.hosts in ripcord.yaml lists the names "
                  "by which it may be asked for beside that.");
    return 421;
}

/* A page that came from here may ask here: its origin is the very address that it asks. */
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

static void auth_read_token(struct auth *g, uint64_t stamp)
{
    struct api_token old = g->token;

    g->stamp = token_load(g->config.state_dir, &g->token, NULL) < 0 ? 0 : stamp;
    g->changed |= !g->stamp || !token_matches(&g->token, old.text);
    token_done(&old);
}

static void auth_look_at_file(struct auth *g)
{
    uint64_t stamp = token_stamp(g->config.state_dir);

    if (stamp != g->stamp)
        auth_read_token(g, stamp);
}

static bool auth_has_token(struct auth *g, const struct http_head *head)
{
    static const char scheme[] = "Bearer ";
    const char *given = http_field_get(head, "authorization");

    auth_look_at_file(g);
    return g->stamp && given && strncasecmp(given, scheme, sizeof(scheme) - 1) == 0 &&
           token_matches(&g->token, given + sizeof(scheme) - 1);
}

/* One more each second, up to as many as there were. */
static void auth_refill(struct auth *g)
{
    uint64_t now = time_mono(), more = (now - g->tries_at) / USEC_PER_SEC;

    if (!more)
        return;
    g->tries_at += more * USEC_PER_SEC;
    g->tries_left = (unsigned)MIN(g->tries_left + more, (uint64_t)TRIES_MAX);
    if (g->tries_refused && g->config.on_refused)
        g->config.on_refused(g->config.arg, g->tries_refused);
    g->tries_refused = 0;
}

bool auth_tick(struct auth *g)
{
    bool changed;

    auth_refill(g);
    auth_look_at_file(g);
    changed = g->changed;
    g->changed = false;
    return changed;
}

static int auth_refuse_try(struct auth *g, bool given, struct err *err)
{
    auth_refill(g);
    g->tries_refused++;
    if (!g->tries_left) {
        err_set(err, ERR_LIMIT, "too many requests without the right token");
        err_hint(err, "Try again in a second, with the token.");
        return 429;
    }
    g->tries_left--;
    err_set(err, ERR_UNAUTHORIZED,
            given ? "that is not this daemon's token" : "a token is needed over TCP");
    err_hint(err, "Send 'Authorization: Bearer TOKEN'; for the command line, set RIPCORD_TOKEN. "
                  "'ripcord token' on the daemon's machine prints it.");
    return 401;
}

int auth_tcp(void *auth, const struct http_head *head, struct err *err)
{
    const char *host = http_field_get(head, "host");
    struct auth *g = auth;
    int status;

    status = auth_check_host(g, host, err);
    if (!status)
        status = auth_check_origin(head, host, err);
    if (status)
        return status;
    return auth_has_token(g, head) ? 0
                                   : auth_refuse_try(g, http_field_get(head, "authorization"), err);
}

int auth_new(const struct auth_config *config, struct auth **ret, struct err *err)
{
    struct auth *g = xnew0(struct auth);
    int r;

    g->config = *config;
    g->config.address = NULL;
    g->port = xstrdup(strrchr(config->address, ':'));
    g->tries_left = TRIES_MAX;
    g->tries_at = time_mono();
    auth_add_host(g, "localhost");
    auth_add_host(g, "127.0.0.1");
    auth_add_host(g, "[::1]");
    auth_add_host(g, config->address);
    for (char *const *name = config->names; name && *name; name++)
        auth_add_host(g, *name);
    /* Before it is read: should it change in between, it is read again. */
    g->stamp = token_stamp(config->state_dir);
    r = token_ensure(config->state_dir, &g->token, err);
    if (r < 0) {
        auth_free(g);
        return r;
    }
    *ret = g;
    return 0;
}

void auth_free(struct auth *g)
{
    if (!g)
        return;
    strv_free(g->hosts);
    token_done(&g->token);
    free(g->port);
    free(g);
}

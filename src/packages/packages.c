/*
 * State that all requests share: clients, missing pages, the state of upstreams, and events.
 */
#include "packages/packages.h"

#include <errno.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/os/tcp-owner.h"

#define DOWN_TIME (15 * USEC_PER_SEC)
#define MISSING_TIME (10 * USEC_PER_SEC)
#define EVENT_LIFE (30 * USEC_PER_SEC)
enum { BODY_MAX = 1 << 20, MISSING_MAX = 4096, CLIENT_EVENTS_MAX = 20 };

static struct packages_client **packages_find_client(struct packages *pkgs, const char *id)
{
    struct packages_client **at = &pkgs->clients;

    while (*at && !STREQ((*at)->id, id))
        at = &(*at)->next;
    return at;
}

static struct packages_client *packages_client_new(struct packages *pkgs, const char *id)
{
    struct packages_client *client = xnew0(struct packages_client);

    client->pkgs = pkgs;
    client->id = xstrdup(id);
    client->tokens = pkgs->config.requests_per_second * 10 * 1000;
    client->tokens_at = time_mono();
    client->next = pkgs->clients;
    pkgs->clients = client;
    return client;
}

static bool packages_turn_away(void *arg, int fd)
{
    const struct packages_client *client = arg;

    return !tcp_peer_is_user(fd, client->owner);
}

/* Names of packages may hold an encoded slash. */
static bool packages_raw_target(void *arg _unused_, const struct http_head *head _unused_)
{
    return true;
}

int packages_listen(struct packages *pkgs, const char *id, int listen_fd, bool owner_only,
                    struct err *err)
{
    struct packages_client **at = packages_find_client(pkgs, id),
                           *client = *at ? *at : packages_client_new(pkgs, id);
    struct http_server_config config = {
        .on_request = serve_request,
        .arg = client,
        .body_max = BODY_MAX,
        .connections_max = (unsigned)pkgs->config.connections_max,
        .turn_away = owner_only ? packages_turn_away : NULL,
        .turn_away_arg = client,
        .any_peer = true,
        .raw_target = packages_raw_target,
    };
    _cleanup_close_ int fd = listen_fd;
    struct stat st;
    int r;

    http_server_free(TAKE_PTR(client->server));
    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "sandbox '%s': inspect its socket", id);
    client->owner = st.st_uid;
    r = http_server_new(pkgs->loop, &config, &client->server, err);
    if (r == 0)
        r = http_server_listen(client->server, TAKE_FD(fd), err);
    if (r < 0) {
        packages_forget(pkgs, id);
        return err_wrap(err, "sandbox '%s'", id);
    }
    return 0;
}

bool packages_forget(struct packages *pkgs, const char *id)
{
    struct packages_client **at = packages_find_client(pkgs, id), *client = *at;

    if (!client)
        return false;
    *at = client->next;
    http_server_free(client->server);
    fetch_slots_forget(pkgs, client);
    free(client->id);
    free(client);
    return true;
}

/*
 * Missing pages are remembered for MISSING_TIME, so that a client that asks again and again does
 * not reach the upstream each time.
 */
void packages_set_missing(struct packages *pkgs, const char *path)
{
    uint64_t *at = xmemdup(&(uint64_t){time_mono()}, sizeof(uint64_t));
    void *old;

    if (pkgs->missing.used >= MISSING_MAX) {
        for (size_t i = 0; map_next(&pkgs->missing, &i, NULL, &old);)
            free(old);
        map_done(&pkgs->missing);
    }
    free(map_remove(&pkgs->missing, path));
    if (!map_add(&pkgs->missing, path, at))
        free(at);
}

bool packages_is_missing(struct packages *pkgs, const char *path)
{
    const uint64_t *at = map_get(&pkgs->missing, path);

    return at && time_mono() - *at < MISSING_TIME;
}

void packages_upstream_failed(struct packages *pkgs, struct upstream *u, const struct err *err)
{
    bool news = !u->down;

    u->down = true;
    u->down_until = time_mono() + DOWN_TIME;
    if (news)
        packages_event(pkgs, "upstream_down", "{s:s, s:s}", "upstream", u->name, "message",
                       err->msg);
}

void packages_upstream_works(struct packages *pkgs, struct upstream *u)
{
    bool news = u->down;

    u->down = false;
    if (news)
        packages_event(pkgs, "upstream_up", "{s:s}", "upstream", u->name);
}

/* CLIENT_EVENTS_MAX at once, then one per EVENT_LIFE. */
bool packages_may_report(struct packages_client *client)
{
    uint64_t now = time_mono(), over = (now - client->reported_at) / EVENT_LIFE;

    client->reported -= MIN(client->reported, over);
    client->reported_at = client->reported ? client->reported_at + over * EVENT_LIFE : now;
    if (client->reported >= CLIENT_EVENTS_MAX)
        return false;
    client->reported++;
    return true;
}

void packages_event(struct packages *pkgs, const char *type, const char *fmt, ...)
{
    _cleanup_json_ json_t *j = NULL;
    _cleanup_free_ char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    j = json_vpack_ex(NULL, 0, fmt, ap);
    va_end(ap);
    if (!j)
        j = json_object(); /* a value is not valid UTF-8: send the type alone */
    json_object_set_new(j, "type", json_string(type));
    text = json_to_text(j, false);
    if (pkgs->control)
        control_event(pkgs->control, text);
}

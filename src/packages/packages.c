/*
 * Sandboxes that come and go, upstreams that work and fail, events.
 */
#include "packages/packages.h"

#include <stdarg.h>
#include <stdlib.h>
#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/json.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

#define DOWN_TIME (15 * USEC_PER_SEC)
#define MISSING_TIME (10 * USEC_PER_SEC)
#define EVENT_LIFE (30 * USEC_PER_SEC)
enum { BODY_MAX = 1 << 20, MISSING_MAX = 4096, BOX_EVENTS_MAX = 20 };

static struct packages_client **packages_find_box(struct packages *reg, const char *id)
{
    struct packages_client **at = &reg->boxes;

    while (*at && !STREQ((*at)->id, id))
        at = &(*at)->next;
    return at;
}

static struct packages_client *packages_box_new(struct packages *reg, const char *id)
{
    struct packages_client *b = xnew0(struct packages_client);

    b->reg = reg;
    b->id = xstrdup(id);
    b->tokens = reg->config.requests_per_second * 10 * 1000;
    b->tokens_at = time_mono();
    b->next = reg->boxes;
    reg->boxes = b;
    return b;
}

int packages_listen(struct packages *reg, const char *id, int listen_fd, struct err *err)
{
    struct packages_client **at = packages_find_box(reg, id),
                           *b = *at ? *at : packages_box_new(reg, id);
    struct http_server_config config = {
        .on_request = serve_request,
        .arg = b,
        .body_max = BODY_MAX,
        .connections_max = (unsigned)reg->config.connections_max,
        .any_peer = true,
        .raw_target = true,
    };
    _cleanup_close_ int fd = listen_fd;
    int r;

    http_server_free(TAKE_PTR(b->server));
    r = http_server_new(reg->loop, &config, &b->server, err);
    if (r >= 0)
        r = http_server_listen(b->server, TAKE_FD(fd), err);
    if (r < 0) {
        packages_forget(reg, id);
        return err_wrap(err, "sandbox '%s'", id);
    }
    return 0;
}

bool packages_forget(struct packages *reg, const char *id)
{
    struct packages_client **at = packages_find_box(reg, id), *b = *at;

    if (!b)
        return false;
    *at = b->next;
    http_server_free(b->server);
    fetch_slots_forget(reg, b);
    free(b->id);
    free(b);
    return true;
}

/* Boxed times, so that asking again and again for what is not there stays with us. */
static void packages_forget_missing(struct packages *reg)
{
    void *at;

    for (size_t i = 0; map_next(&reg->missing, &i, NULL, &at);)
        free(at);
    map_done(&reg->missing);
}

void packages_set_missing(struct packages *reg, const char *path)
{
    uint64_t *at = xmemdup(&(uint64_t){time_mono()}, sizeof(uint64_t));

    if (reg->missing.used >= MISSING_MAX)
        packages_forget_missing(reg);
    free(map_remove(&reg->missing, path));
    if (!map_add(&reg->missing, path, at))
        free(at);
}

bool packages_is_missing(struct packages *reg, const char *path)
{
    const uint64_t *at = map_get(&reg->missing, path);

    return at && time_mono() - *at < MISSING_TIME;
}

void packages_upstream_failed(struct packages *reg, struct upstream *u, const struct err *err)
{
    bool news = !u->down;

    u->down = true;
    u->down_until = time_mono() + DOWN_TIME;
    if (news)
        packages_event(reg, "upstream_down", "{s:s, s:s}", "upstream", u->name, "message",
                       err->msg);
}

void packages_upstream_works(struct packages *reg, struct upstream *u)
{
    bool news = u->down;

    u->down = false;
    if (news)
        packages_event(reg, "upstream_up", "{s:s}", "upstream", u->name);
}

/* So many at once, then one in EVENT_LIFE. */
bool packages_may_tell(struct packages_client *box)
{
    uint64_t now = time_mono(), over = (now - box->told_at) / EVENT_LIFE;

    box->told -= MIN(box->told, over);
    box->told_at = box->told ? box->told_at + over * EVENT_LIFE : now;
    if (box->told >= BOX_EVENTS_MAX)
        return false;
    box->told++;
    return true;
}

void packages_event(struct packages *reg, const char *type, const char *fmt, ...)
{
    _cleanup_json_ json_t *j = NULL;
    _cleanup_free_ char *text = NULL;
    va_list ap;

    va_start(ap, fmt);
    j = json_vpack_ex(NULL, 0, fmt, ap);
    va_end(ap);
    if (!j)
        j = json_object(); /* words that are no UTF-8: the type alone is news */
    json_object_set_new(j, "type", json_string(type));
    text = json_to_text(j, false);
    if (reg->control)
        control_event(reg->control, text);
}

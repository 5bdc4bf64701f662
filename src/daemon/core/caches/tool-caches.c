/*
 * Lists and drops the caches of package tools. Engines are asked one after another. The failure of
 * one engine is an entry of its own beside the results of the others.
 */
#include "daemon/core/caches/tool-caches.h"

#include <stdlib.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/engine/caches.h"
#include "daemon/engine/engine-caches.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

struct tool_caches_round {
    struct manager *m;
    size_t next;
    struct engine *engine; /* the engine that is being asked */
    json_t *items, *troubles;
    char *tool; /* the tool to drop, "" for all; NULL: list */
    tool_caches_fn done;
    void *arg;
};

static void tool_caches_round_end(struct tool_caches_round *r)
{
    _cleanup_json_ json_t *doc = json_pack("{s:o, s:o}", "caches", r->items, "errors", r->troubles);

    r->m->background_calls--;
    r->done(r->arg, doc);
    free(r->tool);
    free(r);
}

static void tool_caches_round_step(struct tool_caches_round *r);

static void tool_caches_round_trouble(struct tool_caches_round *r, const struct err *err)
{
    json_array_append_new(r->troubles,
                          json_pack("{s:s, s:s, s:s}", "engine", r->engine->ops->name, "code",
                                    err_code_name(err->code), "message", err->msg));
}

/* ---- listing ---- */

static json_t *tool_caches_to_json(struct tool_caches_round *r, const struct engine_cache *c)
{
    static const char *const kinds[] = {"base", "shared", "private"};
    const struct sandbox *sb =
        c->kind == ENGINE_CACHE_PRIVATE ? manager_find_id(r->m, c->owner) : NULL;
    json_t *o = json_pack("{s:s, s:s, s:s, s:s}", "engine", r->engine->ops->name, "kind",
                          kinds[c->kind], "tool", c->tool, "owner", sb ? sb->name : c->owner);

    json_object_set_new(o, "bytes",
                        c->bytes == UINT64_MAX ? json_null() : json_integer((json_int_t)c->bytes));
    json_object_set_new(o, "changed_at", json_from_time(c->changed));
    return o;
}

static void tool_caches_listed(void *arg, const struct err *err, const struct engine_caches *caches)
{
    struct tool_caches_round *r = arg;

    if (err)
        tool_caches_round_trouble(r, err);
    for (size_t i = 0; i < caches->n; i++)
        json_array_append_new(r->items, tool_caches_to_json(r, &caches->items[i]));
    tool_caches_round_step(r);
}

/* ---- dropping ---- */

static void tool_caches_dropped(void *arg, const struct err *err, struct engine_sandbox *info)
{
    (void)info;
    if (err && err->code != ERR_UNSUPPORTED)
        tool_caches_round_trouble(arg, err);
    tool_caches_round_step(arg);
}

static void tool_caches_round_step(struct tool_caches_round *r)
{
    const struct manager_config *c = &r->m->config;

    while (r->next < c->n_engines && !manager_asks_engine(r->m, c->engines[r->next]))
        r->next++;
    if (r->next == c->n_engines) {
        tool_caches_round_end(r);
        return;
    }
    r->engine = c->engines[r->next++];
    if (r->tool)
        engine_cache_drop(r->engine, r->tool, tool_caches_dropped, r);
    else
        engine_cache_list(r->engine, tool_caches_listed, r);
}

static void tool_caches_round_start(struct manager *m, const char *tool, tool_caches_fn done,
                                    void *arg)
{
    struct tool_caches_round *r = xnew0(struct tool_caches_round);

    r->m = m;
    r->items = json_array();
    r->troubles = json_array();
    r->tool = tool ? xstrdup(tool) : NULL;
    r->done = done;
    r->arg = arg;
    m->background_calls++;
    tool_caches_round_step(r);
}

void manager_caches(struct manager *m, tool_caches_fn done, void *arg)
{
    tool_caches_round_start(m, NULL, done, arg);
}

int manager_caches_drop(struct manager *m, const char *tool, tool_caches_fn done, void *arg,
                        struct err *err)
{
    bool all = STREQ(tool, CACHE_ALL);
    const struct cache_tool *t;
    int r = all ? 0 : cache_tool_find(tool, &t, err);

    if (r < 0)
        return r;
    tool_caches_round_start(m, all ? "" : tool, done, arg);
    return 0;
}

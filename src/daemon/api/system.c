#include <string.h>
#include <unistd.h>

#include "daemon/api/call.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/macro.h"

void handle_health(struct api_call *c)
{
    call_reply(c, 200, json_pack("{s:s}", "status", "ok"));
}

/* The daemon listens only after its start, so any answer means ready. An engine that is down does
 * not count: only requests that need it fail. */
void handle_ready(struct api_call *c)
{
    call_reply(c, 200, json_pack("{s:s}", "status", "ready"));
}

void handle_version(struct api_call *c)
{
    const struct api_config *s = api_settings(c->api);

    call_reply(c, 200,
               json_pack("{s:s, s:i, s:i, s:s, s:s, s:s, s:s?}", "version", s->version, "api", 1,
                         "pid", (int)getpid(), "root_id", s->root_id, "state_dir", s->state_dir,
                         "run_dir", s->run_dir, "listen", s->listen(s->arg)));
}

void handle_config(struct api_call *c)
{
    const struct api_config *s = api_settings(c->api);

    call_reply(c, 200, json_pack("{s:o}", "config", s->settings(s->arg)));
}

void handle_openapi(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    const char *json = api_settings(c->api)->document();

    if (json) {
        call_reply_text(c, 200, json);
        return;
    }
    err_set(&err, ERR_SYSTEM, "the document of the API is damaged");
    call_reply_err(c, &err);
}

/* clang-format off */
static const struct { uint32_t bit; const char *name; } caps[] = {
    {ENGINE_CAP_PAUSE, "pause"},               {ENGINE_CAP_PTY, "pty"},
    {ENGINE_CAP_STATS, "stats"},               {ENGINE_CAP_MEMORY_LIMIT, "memory_limit"},
    {ENGINE_CAP_CPU_LIMIT, "cpu_limit"},       {ENGINE_CAP_PIDS_LIMIT, "pids_limit"},
    {ENGINE_CAP_DISK_LIMIT, "disk_limit"},     {ENGINE_CAP_NET_OPEN, "network_open"},
    {ENGINE_CAP_RUNTIME, "runtime"},           {ENGINE_CAP_IMAGES, "images"},
    {ENGINE_CAP_NET_ISOLATED, "network_isolated"}, {ENGINE_CAP_NET_PACKAGES, "network_packages"},
    {ENGINE_CAP_STRICT, "isolation_strict"},       {ENGINE_CAP_CONFINED, "isolation_confined"},
};
/* clang-format on */

static json_t *system_caps_to_json(const struct engine *e)
{
    json_t *names = json_array();

    for (size_t i = 0; i < ARRAY_SIZE(caps); i++)
        if (e->caps & caps[i].bit)
            json_array_append_new(names, json_string(caps[i].name));
    return names;
}

static json_t *system_cache_modes_to_json(uint32_t bits)
{
    json_t *names = json_array();

    for (int m = 0; m <= CACHE_READONLY; m++)
        if (bits & (1U << m))
            json_array_append_new(names, json_string(spec_cache_mode_name(m)));
    return names;
}

static json_t *system_engine_to_json(const struct engine *e, const char *by_default)
{
    const struct err *why = engine_trouble(e);
    bool open = engine_is_open(e);
    json_t *o = json_pack("{s:s, s:b, s:b}", "name", e->ops->name, "available", open, "default",
                          STREQ(e->ops->name, by_default));
    json_t *error = why ? json_from_err(why) : NULL;

    json_object_set_new(o, "capabilities", open ? system_caps_to_json(e) : json_array());
    json_object_set_new(o, "cache_modes", system_cache_modes_to_json(open ? e->cache_modes : 0));
    json_object_set_new(o, "about", open && e->about ? json_string(e->about) : json_null());
    json_object_set_new(o, "default_image", json_string(e->ops->default_image));
    json_object_set(o, "error", error ? json_object_get(error, "error") : json_null());
    json_decref(error);
    return o;
}

static void system_reply_engines(struct api_call *c)
{
    const struct manager_config *m = manager_settings(c->manager);
    json_t *list = json_array();

    for (size_t i = 0; i < m->n_engines; i++)
        json_array_append_new(list, system_engine_to_json(m->engines[i], m->default_engine));
    call_reply(c, 200, json_pack("{s:o}", "engines", list));
}

static void system_prepared(void *arg, const struct err *err, struct engine_sandbox *sandbox)
{
    struct api_call *c = arg;

    (void)err; /* engine_trouble() has it */
    (void)sandbox;
    if (--c->number == 0)
        system_reply_engines(c);
}

/* Tries to open engines that are not open, so that the answer is current. */
void handle_engines(struct api_call *c)
{
    const struct manager_config *m = manager_settings(c->manager);

    for (size_t i = 0; i < m->n_engines; i++)
        c->number += !engine_is_open(m->engines[i]);
    if (!c->number) {
        system_reply_engines(c);
        return;
    }
    for (size_t i = 0; i < m->n_engines; i++)
        if (!engine_is_open(m->engines[i]))
            engine_prepare(m->engines[i], system_prepared, c);
}

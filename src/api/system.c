#include <string.h>
#include <unistd.h>

#include "api/call.h"
#include "base/macro.h"

void handle_health(struct call *c)
{
    call_reply(c, 200, json_pack("{s:s}", "status", "ok"));
}

/* The daemon listens only when its engines are open, so to be asked is to be ready. */
void handle_ready(struct call *c)
{
    call_reply(c, 200, json_pack("{s:s}", "status", "ready"));
}

void handle_version(struct call *c)
{
    const struct api_config *s = api_settings(c->api);

    call_reply(c, 200,
               json_pack("{s:s, s:i, s:i, s:s, s:s, s:s}", "version", s->version, "api", 1, "pid",
                         (int)getpid(), "root_id", s->root_id, "state_dir", s->state_dir, "run_dir",
                         s->run_dir));
}

void handle_config(struct call *c)
{
    const struct api_config *s = api_settings(c->api);

    call_reply(c, 200, json_pack("{s:o}", "config", s->settings(s->arg)));
}

/* clang-format off */
static const struct { uint32_t bit; const char *name; } caps[] = {
    {ENGINE_CAP_PAUSE, "pause"},               {ENGINE_CAP_PTY, "pty"},
    {ENGINE_CAP_STATS, "stats"},               {ENGINE_CAP_MEMORY_LIMIT, "memory_limit"},
    {ENGINE_CAP_CPU_LIMIT, "cpu_limit"},       {ENGINE_CAP_PIDS_LIMIT, "pids_limit"},
    {ENGINE_CAP_DISK_LIMIT, "disk_limit"},     {ENGINE_CAP_NET_OPEN, "network_open"},
};
/* clang-format on */

static json_t *engine_to_json(const struct engine *e, const char *by_default)
{
    json_t *names = json_array();

    for (size_t i = 0; i < ARRAY_SIZE(caps); i++)
        if (e->caps & caps[i].bit)
            json_array_append_new(names, json_string(caps[i].name));
    return json_pack("{s:s, s:b, s:b, s:o}", "name", e->ops->name, "available", 1, "default",
                     STREQ(e->ops->name, by_default), "capabilities", names);
}

void handle_engines(struct call *c)
{
    const struct manager_config *m = manager_settings(c->manager);
    json_t *list = json_array();

    for (size_t i = 0; i < m->n_engines; i++)
        json_array_append_new(list, engine_to_json(m->engines[i], m->default_engine));
    call_reply(c, 200, json_pack("{s:o}", "engines", list));
}

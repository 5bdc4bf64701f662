/*
 * The caches of package tools: lists them, fills the shared base of a tool, and removes them.
 */
#include "daemon/core/caches/tool-caches.h"

#include "daemon/api/call.h"
#include "daemon/core/caches/warm.h"

static void api_tool_caches_warmed(void *arg, const struct err *err, const json_t *result)
{
    if (err)
        call_reply_err(arg, err);
    else
        call_reply(arg, 200, json_deep_copy(result));
}

void handle_cache_warm(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (manager_warm(c->manager, c->body, api_tool_caches_warmed, c, &err) < 0)
        call_reply_err(c, &err);
}

static void api_tool_caches_reply(void *arg, const json_t *doc)
{
    call_reply(arg, 200, json_deep_copy(doc));
}

void handle_tool_caches(struct api_call *c)
{
    manager_caches(c->manager, api_tool_caches_reply, c);
}

void handle_tool_prune(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    const char *tool = NULL;
    const struct json_field fields[] = {{"tool", JSON_FIELD_STRING, &tool}};
    int r = json_read(c->body, NULL, fields, 1, &err);

    if (r == 0 && !tool)
        r = err_set(&err, ERR_INVALID, "field 'tool' is missing (the name of a tool, or 'all')");
    if (r < 0 || manager_caches_drop(c->manager, tool, api_tool_caches_reply, c, &err) < 0)
        call_reply_err(c, &err);
}

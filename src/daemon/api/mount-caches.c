/* Cache mounts of builds: each handler asks the manager and sends its JSON answer. */
#include "daemon/core/caches/mount-caches.h"

#include <string.h>

#include "daemon/api/call.h"
#include "lib/base/cleanup.h"

static void api_mount_caches_listed(void *arg, const struct err *err, const char *json)
{
    struct api_call *c = arg;
    _cleanup_err_ struct err bad = ERR_INIT;
    json_t *doc = NULL;

    if (err || json_parse("list of cache mounts", json, strlen(json), &doc, &bad) < 0) {
        call_reply_err(c, err ? err : &bad);
        return;
    }
    json_object_set_new(doc, "budget",
                        json_integer((json_int_t)manager_settings(c->manager)->mounts_budget));
    call_reply(c, 200, doc);
}

void handle_mount_caches(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    int r = manager_mounts(c->manager, api_mount_caches_listed, c, &err);

    if (r < 0)
        call_reply_err(c, &err);
    else if (r == 0)
        api_mount_caches_listed(c, NULL, "{\"mounts\":[],\"bytes\":0}");
}

void handle_mount_cache_remove(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *id = NULL;
    int r = call_query_text(c, "id", &id, &err);

    if (r == 0 && (!id || !*id))
        r = err_set(&err, ERR_INVALID, "query parameter 'id' is missing");
    if (r < 0 || manager_mount_remove(c->manager, id, call_answered, c, &err) < 0)
        call_reply_err(c, &err);
}

void handle_mount_cache_prune(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t keep = UINT64_MAX, unused_ms = 0;
    const struct json_field fields[] = {
        {"keep", JSON_FIELD_U64, &keep},
        {"unused_ms", JSON_FIELD_U64, &unused_ms},
    };

    if (json_read(c->body, NULL, fields, ARRAY_SIZE(fields), &err) < 0 ||
        manager_mounts_trim(c->manager, keep == UINT64_MAX ? NULL : &keep, (unused_ms + 999) / 1000,
                            call_answered, c, &err) < 0)
        call_reply_err(c, &err);
}

/*
 * The package registry's store: thin calls to the process that keeps it. Its answers are JSON of
 * our own make and go out as they are.
 */
#include <string.h>

#include "api/call.h"
#include "base/cleanup.h"
#include "base/time.h"
#include "registry/keeper.h"

static void answered(void *arg, const struct err *err, const char *json)
{
    struct call *c = arg;

    if (err)
        call_reply_err(c, err);
    else
        call_reply_text(c, 200, json);
}

static void ask(struct call *c, const struct keeper_ask *what)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct keeper *k = manager_settings(c->manager)->registry;

    if (k) {
        keeper_ask(k, what, answered, c);
        return;
    }
    err_set(&err, ERR_UNSUPPORTED, "this daemon has no package registry");
    call_reply_err(c, &err);
}

void handle_caches(struct call *c)
{
    ask(c, &(struct keeper_ask){.what = KEEPER_STATS});
}

void handle_cache_list(struct call *c)
{
    ask(c, &(struct keeper_ask){.what = KEEPER_LIST});
}

void handle_cache_show(struct call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *of = NULL;
    int r = call_query_text(c, "of", &of, &err);

    if (r >= 0 && (!of || !*of))
        r = err_set(&err, ERR_INVALID,
                    "query parameter 'of' is missing: pypi/NAME, npm/NAME or a "
                    "digest");
    if (r < 0)
        call_reply_err(c, &err);
    else
        ask(c, &(struct keeper_ask){.what = KEEPER_SHOW, .subject = of});
}

void handle_cache_verify(struct call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (json_read(c->body, NULL, NULL, 0, &err) < 0)
        call_reply_err(c, &err);
    else
        ask(c, &(struct keeper_ask){.what = KEEPER_VERIFY});
}

void handle_cache_prune(struct call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t keep = UINT64_MAX, unused_ms = 0;
    const struct json_field fields[] = {
        {"keep", JSON_FIELD_U64, &keep},
        {"unused_ms", JSON_FIELD_U64, &unused_ms},
    };

    if (json_read(c->body, NULL, fields, ARRAY_SIZE(fields), &err) < 0)
        call_reply_err(c, &err);
    else
        ask(c, &(struct keeper_ask){.what = KEEPER_PRUNE,
                                    .keep = keep == UINT64_MAX ? NULL : &keep,
                                    .unused_for = (unused_ms + 999) / 1000});
}

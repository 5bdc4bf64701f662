/*
 * The package cache: each handler asks the process that owns the store, and sends its JSON answer
 * unchanged.
 */
#include <string.h>

#include "daemon/api/call.h"
#include "daemon/packages/packages-proxy.h"
#include "lib/base/cleanup.h"
#include "lib/base/time.h"

static void api_caches_ask(struct api_call *c, const struct packages_proxy_ask *what,
                           packages_proxy_fn done)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct packages_proxy *proxy = manager_settings(c->manager)->packages;

    if (proxy) {
        packages_proxy_ask(proxy, what, done, c);
        return;
    }
    err_set(&err, ERR_UNSUPPORTED, "this daemon has no package cache");
    call_reply_err(c, &err);
}

static void api_caches_with_names(void *arg, const struct err *err, const char *json)
{
    struct api_call *c = arg;
    json_t *doc = NULL, *names;
    const json_t *counted;
    struct sandbox *sb;

    if (err) {
        call_reply_err(c, err);
        return;
    }
    if (json_parse("answer of the package cache", json, strlen(json), &doc, NULL) < 0) {
        call_reply_text(c, 200, json);
        return;
    }
    /* The package cache counts by sandbox id. This adds the names, for people. */
    counted = json_object_get(doc, "sandboxes");
    names = json_object();
    for (size_t i = 0; manager_next(c->manager, &i, &sb);)
        if (json_object_get(counted, sb->id))
            json_object_set_new(names, sb->id, json_string(sb->name));
    json_object_set_new(doc, "names", names);
    call_reply(c, 200, doc);
}

void handle_caches(struct api_call *c)
{
    api_caches_ask(c, &(struct packages_proxy_ask){.what = PACKAGES_PROXY_STATS},
                   api_caches_with_names);
}

void handle_cache_list(struct api_call *c)
{
    api_caches_ask(c, &(struct packages_proxy_ask){.what = PACKAGES_PROXY_LIST}, call_answered);
}

void handle_cache_show(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *of = NULL;

    if (call_query_text(c, "of", &of, &err) >= 0 && (!of || !*of))
        err_set(&err, ERR_INVALID,
                "query parameter 'of' is missing (pypi/NAME, npm/NAME or a digest)");
    if (err.code)
        call_reply_err(c, &err);
    else
        api_caches_ask(c, &(struct packages_proxy_ask){.what = PACKAGES_PROXY_SHOW, .subject = of},
                       call_answered);
}

void handle_cache_verify(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (json_read(c->body, NULL, NULL, 0, &err) < 0)
        call_reply_err(c, &err);
    else
        api_caches_ask(c, &(struct packages_proxy_ask){.what = PACKAGES_PROXY_VERIFY},
                       call_answered);
}

void handle_cache_prune(struct api_call *c)
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
        api_caches_ask(c,
                       &(struct packages_proxy_ask){.what = PACKAGES_PROXY_PRUNE,
                                                    .keep = keep == UINT64_MAX ? NULL : &keep,
                                                    .unused_for = (unused_ms + 999) / 1000},
                       call_answered);
}

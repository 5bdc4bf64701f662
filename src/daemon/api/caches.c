/*
 * The package registry's store: thin calls to the process that keeps it. Its answers are JSON of
 * our own make and go out as they are.
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
    struct packages_proxy *k = manager_settings(c->manager)->packages;

    if (k) {
        packages_proxy_ask(k, what, done, c);
        return;
    }
    err_set(&err, ERR_UNSUPPORTED, "this daemon has no package registry");
    call_reply_err(c, &err);
}

/* The registry knows sandboxes by their ids; people do by their names. */
static void api_caches_add_names(struct manager *m, json_t *doc)
{
    const json_t *counted = json_object_get(doc, "sandboxes");
    json_t *names = json_object();
    struct sandbox *sb;

    for (size_t i = 0; manager_next(m, &i, &sb);)
        if (json_object_get(counted, sb->id))
            json_object_set_new(names, sb->id, json_string(sb->name));
    json_object_set_new(doc, "names", names);
}

static void api_caches_with_names(void *arg, const struct err *err, const char *json)
{
    struct api_call *c = arg;
    json_t *doc = NULL;

    if (err) {
        call_reply_err(c, err);
    } else if (json_parse("the registry's answer", json, strlen(json), &doc, NULL) < 0) {
        call_reply_text(c, 200, json);
    } else {
        api_caches_add_names(c->manager, doc);
        call_reply(c, 200, doc);
    }
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
    int r = call_query_text(c, "of", &of, &err);

    if (r >= 0 && (!of || !*of))
        r = err_set(&err, ERR_INVALID,
                    "query parameter 'of' is missing: pypi/NAME, npm/NAME or a "
                    "digest");
    if (r < 0)
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

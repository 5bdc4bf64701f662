#include <stdlib.h>
#include <string.h>

#include "daemon/api/call.h"
#include "daemon/api/package-counts.h"
#include "daemon/core/caches/sandbox-packages.h"
#include "daemon/core/sandbox/lease.h"
#include "daemon/core/sandbox/spec.h"
#include "daemon/packages/packages-proxy.h"
#include "lib/base/cleanup.h"
#include "lib/base/json-put.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

static void sandboxes_put_state(struct buf *b, const struct sandbox *sb)
{
    _cleanup_free_ char *unsure = NULL;

    if (sandbox_is_unsure(sb))
        unsure = xasprintf("the daemon has just started; the last known state is %s",
                           sandbox_state_name(sb->state));
    json_put_string(b, "state", sandbox_shown_state(sb));
    json_put_time(b, "since", sb->since);
    json_put_string(b, "reason", unsure ? unsure : sb->reason);
}

void sandbox_put(struct buf *b, const char *key, const struct sandbox *sb, bool env)
{
    const char *engine = sb->engine ? sb->engine->ops->name : "";
    uint64_t budget = sb->spec.disk ? 0 : manager_settings(sb->m)->disk_budget;
    uint32_t watched = disk_budget_is_watched(sb) ? LIMIT_DISK_BUDGET : 0;

    json_put_open(b, key, '{');
    json_put_string(b, "name", sb->name);
    json_put_string(b, "id", sb->id);
    json_put_string(b, "engine", engine);
    sandboxes_put_state(b, sb);
    json_put_string(b, "image", sb->spec.image);
    json_put_string(b, "image_digest", sb->spec.image_digest);
    json_put_string(b, "hash", sb->hash);
    json_put_time(b, "created_at", sb->created_at);
    json_put_bool(b, "ephemeral", sb->ephemeral);
    json_put_number(b, "execs_live", sb->n_execs);
    spec_put_limits(b, &sb->spec);
    if (budget)
        json_put_number(b, "disk_budget", budget);
    spec_put_limit_names(b, "unenforced", sb->unenforced | watched);
    json_put_string(b, "network", spec_network_name(sb->spec.network));
    json_put_string(b, "isolation", spec_isolation_name(sb->spec.isolation));
    lease_put(b, "expires", sb);
    spec_put(b, "spec", &sb->spec, engine, env);
    json_put_close(b, '}');
}

/* {"sandbox":…} and the members of `more`, which is used up. */
static void sandboxes_reply(struct api_call *c, int status, const struct sandbox *sb, json_t *more)
{
    _cleanup_buf_ struct buf b = JSON_PUT_INIT;
    const char *name;
    json_t *value;

    json_put_open(&b, NULL, '{');
    sandbox_put(&b, "sandbox", sb, true);
    json_object_foreach (more, name, value) {
        _cleanup_free_ char *text = json_to_text(value, false);

        json_put_raw(&b, name, text);
    }
    json_put_close(&b, '}');
    json_decref(more);
    call_reply_text(c, status, buf_data(&b));
}

/* ---- ensure ---- */

static json_t *sandboxes_warnings(const struct sandbox *sb)
{
    json_t *w = json_array();

    if (sb->unenforced) {
        _cleanup_json_ json_t *names = spec_limit_names(sb->unenforced);
        _cleanup_free_ char *text = json_to_text(names, false);

        json_array_append_new(w, json_sprintf("%s cannot enforce these default limits: %s",
                                              sandbox_spec_is_confined(&sb->spec)
                                                  ? "isolation 'confined'"
                                                  : "this machine",
                                              text));
    }
    for (char **p = sb->warnings; p && *p; p++)
        json_array_append_new(w, json_from_text(*p));
    if (sandbox_packages_trouble(sb))
        json_array_append_new(w, json_sprintf("the package cache is not running (the next request "
                                              "starts it again): %s",
                                              sandbox_packages_trouble(sb)));
    return w;
}

/* Warnings, and where a network mode gives less on this engine than its name says. */
static json_t *sandboxes_notes(const struct sandbox *sb)
{
    json_t *w = sandboxes_warnings(sb);

    if (sb->spec.network == SPEC_NETWORK_PACKAGES && engine_is_open(sb->engine) &&
        !(sb->engine->caps & ENGINE_CAP_NET_PACKAGES))
        json_array_append_new(w, json_sprintf("network 'packages': engine '%s' has no package "
                                              "cache, so only loopback works, as with 'none'",
                                              sb->engine->ops->name));
    if (sb->spec.network == SPEC_NETWORK_OPEN && engine_is_open(sb->engine) &&
        !(sb->engine->caps & ENGINE_CAP_NET_ISOLATED))
        json_array_append_new(w, json_sprintf("network 'open': engine '%s' does not separate "
                                              "sandboxes from each other",
                                              sb->engine->ops->name));
    return w;
}

static void sandboxes_ensured(void *arg, const struct err *err, const struct sandbox *sb,
                              enum manager_action action)
{
    struct api_call *c = arg;

    if (err) {
        call_reply_err(c, err);
        return;
    }
    sandboxes_reply(c, action == ACTION_CREATED ? 201 : 200, sb,
                    json_pack("{s:s, s:o}", "action", manager_action_name(action), "warnings",
                              sandboxes_warnings(sb)));
}

void handle_sandbox_ensure(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (manager_ensure(c->manager, c->params[0], c->body, sandboxes_ensured, c, &err) < 0)
        call_reply_err(c, &err);
}

/* If the package cache does not answer, the document has no counters. */
static void sandboxes_counted(void *arg, const struct err *err, const char *stats)
{
    struct api_call *c = arg;
    struct sandbox *sb = call_sandbox(c);
    json_t *doc, *packages;

    (void)err;
    if (!sb)
        return;
    doc = json_pack("{s:o}", "warnings", sandboxes_notes(sb));
    packages = package_counts_counters(stats, sb->id);
    if (packages)
        json_object_set_new(doc, "packages", packages);
    if (sandbox_packages_route(sb)) {
        json_object_set_new(doc, "package_cache", json_string(sandbox_packages_route(sb)));
        /* The old name of the field; the next version removes it. */
        json_object_set_new(doc, "registry", json_string(sandbox_packages_route(sb)));
    }
    sandboxes_reply(c, 200, sb, doc);
}

void handle_sandbox_get(struct api_call *c)
{
    struct packages_proxy *proxy = manager_settings(c->manager)->packages;
    struct sandbox *sb = call_sandbox(c);

    if (!sb)
        return;
    if (proxy && packages_proxy_serves(proxy, sb->id))
        packages_proxy_ask(proxy, &(struct packages_proxy_ask){.what = PACKAGES_PROXY_STATS},
                           sandboxes_counted, c);
    else
        sandboxes_counted(c, NULL, NULL);
}

/* ---- stop, pause, remove ---- */

static void sandboxes_reply_sandbox(void *arg, const struct err *err, const struct sandbox *sb,
                                    enum manager_action action)
{
    struct api_call *c = arg;

    (void)action;
    if (err)
        call_reply_err(c, err);
    else
        sandboxes_reply(c, 200, sb, NULL);
}

void handle_sandbox_stop(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t grace_ms = manager_settings(c->manager)->stop_grace / USEC_PER_MSEC;
    const struct json_field fields[] = {{"grace_ms", JSON_FIELD_U64, &grace_ms}};
    int r;

    r = json_read(c->body, NULL, fields, 1, &err);
    if (r >= 0)
        r = parse_check_range("field 'grace_ms'", grace_ms, 0, SPEC_STOP_GRACE_MAX_MS, PARSE_MSEC,
                              &err);
    if (r < 0 || manager_stop(c->manager, c->params[0], grace_ms * USEC_PER_MSEC,
                              sandboxes_reply_sandbox, c, &err) < 0)
        call_reply_err(c, &err);
}

void handle_sandbox_lease(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (manager_lease(c->manager, c->params[0], c->body, sandboxes_reply_sandbox, c, &err) < 0)
        call_reply_err(c, &err);
}

static void sandboxes_pause_or_resume(struct api_call *c, bool on)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (json_read(c->body, NULL, NULL, 0, &err) < 0 ||
        manager_pause(c->manager, c->params[0], on, sandboxes_reply_sandbox, c, &err) < 0)
        call_reply_err(c, &err);
}

void handle_sandbox_pause(struct api_call *c)
{
    sandboxes_pause_or_resume(c, true);
}

void handle_sandbox_resume(struct api_call *c)
{
    sandboxes_pause_or_resume(c, false);
}

static void sandboxes_removed(void *arg, const struct err *err, const struct sandbox *sb,
                              enum manager_action action)
{
    (void)sb;
    (void)action;
    if (err)
        call_reply_err(arg, err);
    else
        call_reply(arg, 200, json_pack("{s:b}", "removed", 1));
}

void handle_sandbox_remove(struct api_call *c)
{
    _cleanup_err_ struct err err = ERR_INIT;
    bool force = false;

    if (call_query_bool(c, "force", &force, &err) < 0 ||
        manager_remove(c->manager, c->params[0], force, sandboxes_removed, c, &err) < 0)
        call_reply_err(c, &err);
}

/*
 * What happens to sandboxes behind our back. An engine's news is a reason to look: the operation
 * below asks the engine what the sandbox is and makes our state agree. When an engine is back,
 * everything that lives there is looked at, and what could not be cleaned up is cleaned up.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/core/caches/sandbox-packages.h"
#include "daemon/core/reconcile/reconcile.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"

static void engine_watch_finish(struct op *op)
{
    struct sandbox *sb = op->sb;

    op_done(op, ACTION_UNCHANGED);
    /* The end of its line was ours to wait for, and with it the end of an ephemeral sandbox. */
    if (sb->ephemeral && !sb->conn)
        sandbox_expire(sb);
}

static void engine_watch_cleaned(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;
    struct sandbox *sb = op->sb;

    (void)info;
    sb->unsettled = err != NULL;
    if (err)
        sandbox_set_state(sb, SANDBOX_FAILED, err->msg, NULL);
    else if (sb->state != SANDBOX_STOPPED || op->why)
        sandbox_set_state(sb, SANDBOX_STOPPED, op->why, NULL);
    engine_watch_finish(op);
}

static void engine_watch_clean(struct op *op)
{
    engine_cleanup(op->sb->engine, op->sb->id, engine_watch_cleaned, op);
}

/* Whether its reason is one that tells how it went down. */
static bool engine_watch_is_explained(const struct sandbox *sb, enum engine_sandbox_state state)
{
    if (sb->state != SANDBOX_STOPPED)
        return true; /* a failure has a reason of its own */
    if (state == ENGINE_SANDBOX_ABSENT)
        return sb->reason && strncmp(sb->reason, SANDBOX_GONE, strlen(SANDBOX_GONE)) == 0;
    return !sb->reason || !STREQ(sb->reason, SANDBOX_ENDED_ITSELF);
}

static char *engine_watch_why_down(enum engine_sandbox_state state)
{
    char when[TIME_FORMAT_MAX];

    return xasprintf("%s at %s",
                     state == ENGINE_SANDBOX_ABSENT ? SANDBOX_GONE : "stopped outside ripcord",
                     time_format(time_wall(), when));
}

/* The engine says that it does not run. */
static void engine_watch_found_down(struct op *op, enum engine_sandbox_state state)
{
    struct sandbox *sb = op->sb;

    if (sb->conn) {
        op->why = engine_watch_why_down(state);
        sandbox_set_state(sb, SANDBOX_STOPPING, op->why, NULL);
        op_down(op, 0, engine_watch_clean); /* its supervisor knows, or is about to */
        return;
    }
    if (!engine_watch_is_explained(sb, state))
        op->why = engine_watch_why_down(state);
    if (sb->unsettled || op->why)
        engine_watch_clean(op);
    else
        engine_watch_finish(op);
}

static void engine_watch_found_up(struct op *op, enum engine_sandbox_state state)
{
    struct sandbox *sb = op->sb;
    enum sandbox_state now = state == ENGINE_SANDBOX_PAUSED ? SANDBOX_PAUSED : SANDBOX_RUNNING;

    if (!sb->conn) { /* nobody could run a command in it: it goes down, as we say it is */
        if (sb->state == SANDBOX_STOPPED || sb->unsettled)
            engine_watch_clean(op);
        else
            engine_watch_finish(op);
        return;
    }
    if (sb->state != now && (sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_PAUSED))
        sandbox_set_state(sb, now, state == ENGINE_SANDBOX_PAUSED ? "paused outside ripcord" : NULL,
                          NULL);
    engine_watch_finish(op);
}

static void engine_watch_inspected(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;
    struct sandbox *sb = op->sb;

    if (err) { /* the engine has gone again; there will be news when it is back */
        log_debug("sandbox %s: cannot be inspected: %s", sb->name, err->msg);
        engine_watch_finish(op);
        return;
    }
    if (sb->conn)
        sandbox_take_warnings(sb, info);
    if (info->state == ENGINE_SANDBOX_ABSENT || info->state == ENGINE_SANDBOX_STOPPED)
        engine_watch_found_down(op, info->state);
    else
        engine_watch_found_up(op, info->state);
}

static void engine_watch_inspect_run(struct op *op)
{
    const struct sandbox *sb = op->sb;

    if (sb->state == SANDBOX_ABSENT)
        op_done(op, ACTION_UNCHANGED);
    else if (sb->engine->ops->look)
        engine_look(sb->engine, sb->id, engine_watch_inspected, op);
    else if (sb->unsettled && !sb->conn)
        engine_watch_clean(op);
    else
        op_done(op, ACTION_UNCHANGED);
}

static const struct op_type op_inspect = {"inspect", engine_watch_inspect_run};

struct op *engine_watch_inspect(struct sandbox *sb)
{
    struct op *last = op_last(sb);

    return last && last->type == &op_inspect && !last->running ? last : op_push(sb, &op_inspect);
}

/* ---- engines out of reach ---- */

#define REACH_INTERVAL (10 * USEC_PER_SEC)

struct reach {
    struct manager *m;
    char *before; /* what was wrong the last time, or NULL */
};

/* Said once, not at each try. */
static void engine_watch_reached(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct reach *r = arg;

    (void)info;
    r->m->background_calls--;
    r->m->reaching--;
    if (err && (!r->before || !STREQ(r->before, err->msg)))
        manager_warn(r->m, "%s; trying again", err->msg);
    free(r->before);
    free(r);
}

static void engine_watch_reach(struct manager *m, struct engine *e)
{
    struct reach *r = xnew0(struct reach);

    r->m = m;
    r->before = engine_trouble(e) ? xstrdup(engine_trouble(e)->msg) : NULL;
    m->background_calls++;
    m->reaching++;
    engine_prepare(e, engine_watch_reached, r);
}

bool engine_watch_is_wanted(struct manager *m, const struct engine *e)
{
    struct sandbox *sb = NULL;

    if (STREQ(e->ops->name, m->config.default_engine))
        return true;
    for (size_t i = 0; manager_next(m, &i, &sb);)
        if (sb->engine == e)
            return true;
    return false;
}

void engine_watch_tick(struct manager *m)
{
    if (m->closing || m->reaching || time_mono() < m->reach_at)
        return;
    m->reach_at = time_mono() + REACH_INTERVAL;
    for (size_t i = 0; i < m->config.n_engines; i++) {
        struct engine *e = m->config.engines[i];

        if (!engine_is_open(e) && engine_watch_is_wanted(m, e))
            engine_watch_reach(m, e);
    }
}

/* ---- news ---- */

static struct sandbox *engine_watch_find_id(struct manager *m, const char *id)
{
    struct sandbox *sb = NULL;

    for (size_t i = 0; manager_next(m, &i, &sb);)
        if (STREQ(sb->id, id))
            return sb;
    return NULL;
}

static void engine_watch_on_back(struct manager *m, struct engine *e)
{
    struct sandbox *sb = NULL;

    for (size_t i = 0; manager_next(m, &i, &sb);) {
        if (sb->engine != e)
            continue;
        if (sb->unsettled && sb->ephemeral)
            sandbox_expire(sb);
        else if (sb->conn || sb->unsettled)
            engine_watch_inspect(sb);
    }
    reconcile_soon(m, "engine");
}

void engine_watch_on_news(void *arg, struct engine *e, const struct engine_news *news)
{
    struct manager *m = arg;
    struct sandbox *sb;

    if (m->closing)
        return;
    if (news->kind == ENGINE_NEWS_BACK) {
        engine_watch_on_back(m, e);
        return;
    }
    if (news->kind == ENGINE_NEWS_PACKAGES) {
        sandbox_packages_build(m, news->id, news->fd);
        return;
    }
    sb = engine_watch_find_id(m, news->id);
    if (sb && sb->engine == e)
        engine_watch_inspect(sb);
}

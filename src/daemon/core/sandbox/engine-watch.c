/*
 * Reacts to changes outside ripcord, and opens engines that could not be reached. An engine's news
 * only says that something changed: an operation asks the engine for the sandbox's state and takes
 * it over. When an engine is back, all its live sandboxes are inspected, and pending cleanups are
 * done.
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
    /* manager_on_closed() left this to the operation. */
    if (sb->ephemeral && !sb->conn)
        sandbox_expire(sb);
}

/* The engine was out of reach when the daemon started. */
static void engine_watch_settled(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;
    const char *why;
    enum sandbox_state state = sandbox_settled_state(op->sb, err, info, &why);

    op->sb->unsettled = err != NULL;
    sandbox_set_state(op->sb, state, why, NULL);
    engine_watch_finish(op);
}

static void engine_watch_cleaned(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;
    struct sandbox *sb = op->sb;

    (void)info;
    if (!err && sb->torn) {
        op_settle_with(op, engine_watch_settled);
        return;
    }
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

/* Whether its reason says how it went down. */
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

/* The engine reports that it does not run. */
static void engine_watch_found_down(struct op *op, enum engine_sandbox_state state)
{
    struct sandbox *sb = op->sb;

    if (sb->conn) {
        op->why = engine_watch_why_down(state);
        sandbox_set_state(sb, SANDBOX_STOPPING, op->why, NULL);
        op_down(op, 0, engine_watch_clean); /* its supervisor has noticed, or will soon */
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

    if (!sb->conn) { /* without a connection no command can run in it: stop it, as its state says */
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

    if (err) { /* the engine is gone again; it sends news when it is back */
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

/* ---- unreachable engines ---- */

#define REACH_INTERVAL (10 * USEC_PER_SEC)

struct engine_attempt {
    struct manager *m;
    char *before; /* the failure of the last try, or NULL */
};

/* Warns only when the failure is a new one. */
static void engine_watch_opened(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct engine_attempt *r = arg;

    (void)info;
    r->m->background_calls--;
    r->m->opening--;
    if (err && (!r->before || !STREQ(r->before, err->msg)))
        manager_warn(r->m, "%s; trying again", err->msg);
    free(r->before);
    free(r);
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
    if (m->closing || m->opening || time_mono() < m->open_at)
        return;
    m->open_at = time_mono() + REACH_INTERVAL;
    for (size_t i = 0; i < m->config.n_engines; i++) {
        struct engine *e = m->config.engines[i];
        struct engine_attempt *r;

        if (engine_is_open(e) || !engine_watch_is_wanted(m, e))
            continue;
        r = xnew0(struct engine_attempt);
        r->m = m;
        r->before = engine_trouble(e) ? xstrdup(engine_trouble(e)->msg) : NULL;
        m->background_calls++;
        m->opening++;
        engine_prepare(e, engine_watch_opened, r);
    }
}

/* ---- news ---- */

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
    sb = manager_find_id(m, news->id);
    if (sb && sb->engine == e)
        engine_watch_inspect(sb);
}

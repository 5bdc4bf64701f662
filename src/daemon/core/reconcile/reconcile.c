/*
 * Runs of reconcile: one at a time, others wait in a queue. Each engine has a lane of items, and a
 * few of them are worked on at once. Legacy networks and volumes come last, because other objects
 * use them.
 */
#include "daemon/core/reconcile/reconcile.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/events/events.h"
#include "daemon/core/reconcile/reconcile-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

void recon_item_free(struct recon_item *item)
{
    free(item->name);
    free(item->ref);
    free(item->spec);
    free(item->reason);
    free(item->hint);
    err_done(&item->err);
    free(item);
}

static void reconcile_run_free(struct recon_run *run)
{
    if (!run)
        return;
    for (size_t i = 0; i < run->n_lanes; i++) {
        struct recon_lane *lane = &run->lanes[i];

        for (size_t k = 0; k < lane->n; k++)
            recon_item_free(lane->items[k]);
        free(lane->items);
        free(lane->trouble);
    }
    free(run->lanes);
    free(run);
}

/* ---- one item ---- */

static void reconcile_lane_go(struct recon_run *run, struct recon_lane *lane);
static void reconcile_run_check(struct recon_run *run);

static struct recon_lane *reconcile_lane_of(const struct recon_item *item)
{
    for (size_t i = 0; i < item->run->n_lanes; i++)
        if (item->run->lanes[i].engine == item->engine)
            return &item->run->lanes[i];
    return NULL;
}

static void reconcile_log_item(const struct recon_item *item)
{
    struct manager *m = item->run->m;
    const char *name = item->name ? item->name : item->id;

    if (item->result == RECON_FAILED)
        manager_warn(m, "reconcile: %s %s '%s' on %s: %s; trying again later",
                     recon_action_name(item->action), object_kind_name(item->kind), name,
                     item->engine->ops->name, item->reason ? item->reason : "failed");
    else
        log_debug("reconcile: %s %s '%s' on %s: %s", recon_action_name(item->action),
                  object_kind_name(item->kind), name, item->engine->ops->name,
                  item->result == RECON_DONE ? "done" : "deferred");
}

static void reconcile_item_over(struct recon_item *item, const struct err *err)
{
    struct recon_run *run = item->run;
    struct recon_lane *lane = reconcile_lane_of(item);
    struct reconcile *rc = run->m->reconcile;

    item->running = false;
    item->result = !err ? RECON_DONE : err->code == ERR_CONFLICT ? RECON_DEFERRED : RECON_FAILED;
    if (err) {
        free(item->reason);
        item->reason = xstrdup(err->msg);
        free(item->hint);
        item->hint = err->hint ? xstrdup(err->hint) : NULL;
    }
    if (err && !run->options.dry_run)
        reconcile_retry_later(rc, item);
    else if (!err)
        reconcile_retry_forget(rc, item);
    reconcile_log_item(item);
    lane->active--;
    lane->finished++;
    reconcile_lane_go(run, lane);
    reconcile_run_check(run);
}

static void reconcile_discarded(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct recon_item *item = arg;

    (void)info;
    item->run->m->background_calls--;
    reconcile_item_over(item, err);
}

static void reconcile_operated(void *arg, const struct err *err, const struct sandbox *sb,
                               enum manager_action action)
{
    const struct err failed = {.code = ERR_ENGINE, .msg = sb ? sb->reason : NULL};

    (void)action;
    if (!err && sb && sb->state == SANDBOX_FAILED && sb->reason)
        reconcile_item_over(arg, &failed);
    else
        reconcile_item_over(arg, err);
}

static void reconcile_over_now(void *arg)
{
    struct recon_item *item = arg;
    _cleanup_err_ struct err err = ERR_INIT;

    item->run->m->background_calls--;
    err_move(&err, &item->err);
    reconcile_item_over(item, err.code ? &err : NULL);
}

/* Ends the item on the next turn of the loop, like every other answer, with item->err if set. */
static void reconcile_over_soon(struct recon_item *item)
{
    item->run->m->background_calls++;
    loop_defer(item->run->m->loop, reconcile_over_now, item);
}

static struct sandbox *reconcile_sandbox_of(const struct recon_item *item)
{
    struct sandbox *sb = item->name ? map_get(&item->run->m->sandboxes, item->name) : NULL;

    return sb && STREQ(sb->id, item->id) && sb->state != SANDBOX_ABSENT ? sb : NULL;
}

static void reconcile_discard(struct recon_item *item, enum discard how, engine_done_fn done)
{
    struct engine_object o = {.kind = item->kind, .name = item->name, .ref = item->ref};

    memcpy(o.id, item->id, sizeof(o.id));
    item->run->m->background_calls++;
    engine_discard(item->engine, &o, how, done, item);
}

/* The engine does not have it: its next start creates it again. */
static void reconcile_mark_gone(struct sandbox *sb)
{
    char when[TIME_FORMAT_MAX];
    _cleanup_free_ char *why = xasprintf(SANDBOX_GONE " at %s", time_format(time_wall(), when));

    sandbox_forget_hash(sb);
    sandbox_set_state(sb, SANDBOX_STOPPED, why, NULL);
}

static void reconcile_operate(struct recon_item *item, struct sandbox *sb)
{
    struct op *op = NULL;

    if (item->action == RECON_RECREATE) {
        op = op_push(sb, &op_renew);
    } else if (item->kept && !sb->torn) {
        op = op_push(sb, &op_settle);
    } else if (item->action == RECON_CLEAN && sb->state == SANDBOX_FAILED) {
        op = recovery_add(sb); /* its supervisor may still live: connect again */
    } else if (item->action == RECON_CLEAN) {
        sb->unsettled = true;
        op = engine_watch_inspect(sb);
    } else if (sb->engine->ops->look) {
        op = engine_watch_inspect(sb);
    } else if (!sb->conn && !sb->ops) {
        reconcile_mark_gone(sb);
    }
    if (op)
        op_wait(op, reconcile_operated, item);
    else
        reconcile_over_soon(item);
}

static void reconcile_adopt(struct recon_item *item)
{
    struct sandbox *sb = NULL;

    if (rebuild_sandbox(item->run->m, item, &sb, &item->err) < 0)
        reconcile_over_soon(item);
    else
        op_wait(recovery_add(sb), reconcile_operated, item);
}

/* For a dry run, or a sandbox that was removed meanwhile. */
static void reconcile_check_only(struct recon_item *item, const struct sandbox *sb)
{
    if (sb && item->action == RECON_RECREATE)
        op_renew_check(sb, &item->err);
    reconcile_over_soon(item);
}

static void reconcile_item_start(struct recon_item *item)
{
    struct sandbox *sb = reconcile_sandbox_of(item);
    bool dry = item->run->options.dry_run;

    item->running = true;
    if (item->action == RECON_REMOVE)
        reconcile_discard(item,
                          dry           ? DISCARD_ASK
                          : item->ended ? DISCARD_ENDED
                                        : DISCARD_REMOVE,
                          reconcile_discarded);
    else if (dry || (item->action != RECON_ADOPT && !sb))
        reconcile_check_only(item, sb);
    else if (item->action == RECON_ADOPT)
        reconcile_adopt(item);
    else
        reconcile_operate(item, sb);
}

/* ---- lanes ---- */

/* Objects that earlier items use. */
static bool reconcile_goes_last(const struct recon_item *item)
{
    return item->kind == OBJECT_NETWORK || item->kind == OBJECT_VOLUME;
}

/* A failure is ignored here: the removal reports it. */
static void reconcile_ended(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct recon_item *item = arg;
    struct recon_run *run = item->run;
    struct recon_lane *lane = reconcile_lane_of(item);

    (void)info;
    item->ended = !err;
    run->m->background_calls--;
    item->running = false;
    lane->active--;
    reconcile_lane_go(run, lane);
    reconcile_run_check(run);
}

/* An engine may restart a legacy container, so it is ended and removed in one step. */
static bool reconcile_is_to_end(const struct recon_run *run, struct recon_item *item)
{
    return item->action == RECON_REMOVE && item->kind == OBJECT_SANDBOX &&
           item->result == RECON_WAITING && !run->options.dry_run &&
           !reconcile_retry_must_wait(run->m->reconcile, item);
}

/* False: some processes of objects to remove have not ended yet. */
static bool reconcile_end_all(struct recon_run *run, struct recon_lane *lane)
{
    if (!engine_ends_first(lane->engine))
        return true;
    while (lane->ended < lane->n && lane->active < lane->engine->at_once && !run->m->closing) {
        struct recon_item *item = lane->items[lane->ended++];

        if (!reconcile_is_to_end(run, item))
            continue;
        lane->active++;
        item->running = true;
        reconcile_discard(item, DISCARD_END, reconcile_ended);
    }
    return lane->ended == lane->n && (lane->next > 0 || !lane->active);
}

static void reconcile_lane_go(struct recon_run *run, struct recon_lane *lane)
{
    unsigned at_once = lane->engine->at_once;

    if (!reconcile_end_all(run, lane))
        return;
    while (lane->next < lane->n && lane->active < at_once && !run->m->closing) {
        struct recon_item *item = lane->items[lane->next];

        if (reconcile_goes_last(item) && lane->active && lane->next > 0 &&
            !reconcile_goes_last(lane->items[lane->next - 1]))
            return; /* objects that use it are still being removed */
        lane->next++;
        if (item->result != RECON_WAITING || reconcile_retry_must_wait(run->m->reconcile, item)) {
            lane->finished++;
            continue;
        }
        lane->active++;
        reconcile_item_start(item);
    }
}

static int reconcile_compare_items(const void *a, const void *b)
{
    const struct recon_item *x = *(struct recon_item *const *)a,
                            *y = *(struct recon_item *const *)b;

    return (int)reconcile_goes_last(x) - (int)reconcile_goes_last(y);
}

struct reconcile_listing {
    struct recon_run *run;
    struct recon_lane *lane;
};

static void reconcile_listed(void *arg, const struct err *err, const struct engine_objects *list)
{
    struct reconcile_listing *l = arg;
    struct recon_run *run = l->run;
    struct recon_lane *lane = l->lane;

    free(l);
    run->m->background_calls--;
    lane->listing = false;
    if (err) {
        lane->trouble = xstrdup(err->msg);
        if (engine_is_open(lane->engine))
            manager_warn(run->m, "reconcile: cannot list the objects on engine '%s': %s",
                         lane->engine->ops->name, err->msg);
    } else if (!run->m->closing) {
        recon_plan(run, lane, list);
        if (lane->n)
            qsort(lane->items, lane->n, sizeof(*lane->items), reconcile_compare_items);
        reconcile_lane_go(run, lane);
    }
    reconcile_run_check(run);
}

static void reconcile_lane_list(struct recon_run *run, struct recon_lane *lane)
{
    struct reconcile_listing *l = xnew0(struct reconcile_listing);

    l->run = run;
    l->lane = lane;
    lane->listing = true;
    lane->listed_at = time_wall();
    run->m->background_calls++;
    engine_list(lane->engine, run->options.from_engine, reconcile_listed, l);
}

/* ---- runs ---- */

static void reconcile_kick(struct reconcile *rc);

static bool reconcile_is_over(const struct recon_run *run)
{
    for (size_t i = 0; i < run->n_lanes; i++) {
        const struct recon_lane *lane = &run->lanes[i];

        if (lane->listing || lane->active || lane->next < lane->n)
            return false;
    }
    return true;
}

static void reconcile_settle_engines(struct recon_run *run)
{
    for (size_t i = 0; i < run->n_lanes && !run->options.dry_run; i++) {
        const struct recon_lane *lane = &run->lanes[i];

        if (!lane->trouble && recon_is_settled(lane))
            store_settle(run->m->store, lane->engine->ops->name, NULL);
    }
}

static void reconcile_emit_ended(struct recon_run *run)
{
    size_t n[4] = {0};

    for (size_t i = 0; i < run->n_lanes; i++)
        for (size_t k = 0; k < run->lanes[i].n; k++) {
            const struct recon_item *item = run->lanes[i].items[k];

            if (item->action != RECON_ADOPT || item->result != RECON_DONE || item->adopts)
                n[item->result]++;
        }
    if (!run->options.dry_run && n[RECON_DONE] + n[RECON_FAILED] > 0)
        events_emit(run->m->config.events, "reconcile.ended", NULL, NULL,
                    json_pack("{s:s, s:I, s:I, s:I}", "trigger", run->options.trigger, "done",
                              (json_int_t)n[RECON_DONE], "deferred", (json_int_t)n[RECON_DEFERRED],
                              "failed", (json_int_t)n[RECON_FAILED]));
}

static void reconcile_run_check(struct recon_run *run)
{
    struct reconcile *rc = run->m->reconcile;

    if (run->ended_at || !reconcile_is_over(run))
        return;
    run->ended_at = time_wall();
    run->took = time_mono() - run->started_mono;
    reconcile_settle_engines(run);
    reconcile_emit_ended(run);
    reconcile_retry_trim(rc);
    rc->queue = run->next;
    rc->begun = false;
    reconcile_run_free(rc->last);
    rc->last = run;
    if (run->done)
        run->done(run->arg);
    reconcile_kick(rc);
}

static void reconcile_run_begin(struct recon_run *run)
{
    const struct manager_config *c = &run->m->config;
    bool command = STREQ(run->options.trigger, "command");

    run->started_at = time_wall();
    run->started_mono = time_mono();
    run->m->reconcile->next_at = time_mono() + c->reconcile_interval;
    run->lanes = xcalloc(c->n_engines, sizeof(*run->lanes));
    for (size_t i = 0; i < c->n_engines; i++) {
        struct engine *e = c->engines[i];

        /* An unreachable engine that nobody would miss is not listed. */
        if (engine_is_open(e) || (command && engine_watch_is_wanted(run->m, e)))
            run->lanes[run->n_lanes++].engine = e;
    }
    for (size_t i = 0; i < run->n_lanes; i++)
        reconcile_lane_list(run, &run->lanes[i]);
    reconcile_run_check(run);
}

static void reconcile_kicked(void *arg)
{
    struct reconcile *rc = arg;

    rc->kicked = false;
    rc->due--;
    if (!rc->m) { /* the manager was freed meanwhile */
        if (!rc->due)
            free(rc);
        return;
    }
    /* Recovery must be done: a sandbox that it has not examined would look lost. */
    if (rc->begun || !rc->queue || rc->m->closing || !manager_is_recovered(rc->m))
        return;
    rc->begun = true;
    reconcile_run_begin(rc->queue);
}

static void reconcile_kick(struct reconcile *rc)
{
    if (rc->kicked)
        return;
    rc->kicked = true;
    rc->due++;
    loop_defer(rc->m->loop, reconcile_kicked, rc);
}

uint64_t reconcile_request(struct manager *m, const struct reconcile_options *options,
                           reconcile_fn done, void *arg)
{
    struct reconcile *rc = m->reconcile;
    struct recon_run *run = xnew0(struct recon_run), **at = &rc->queue;

    run->m = m;
    run->number = ++rc->numbers;
    run->options = *options;
    run->done = done;
    run->arg = arg;
    while (*at)
        at = &(*at)->next;
    *at = run;
    reconcile_kick(rc);
    return run->number;
}

/* One queued run is enough: it sees everything that happens before it begins. */
void reconcile_soon(struct manager *m, const char *trigger)
{
    const struct recon_run *run = m->reconcile->queue;

    for (run = m->reconcile->begun && run ? run->next : run; run; run = run->next)
        if (!run->options.dry_run)
            return;
    reconcile_request(m, &(struct reconcile_options){.trigger = trigger}, NULL, NULL);
}

void reconcile_tick(struct manager *m)
{
    struct reconcile *rc = m->reconcile;
    struct sandbox *sb;

    if (m->closing || !manager_is_recovered(m))
        return;
    /* Stale sandboxes that were busy are re-created as soon as they are idle. */
    for (size_t i = 0; manager_next(m, &i, &sb);)
        if (sb->stale && !sb->ops && !sb->n_execs && !sb->n_transfers)
            op_push(sb, &op_renew);
    if (rc->queue) {
        reconcile_kick(rc);
        return;
    }
    if (m->config.reconcile_interval && rc->next_at && time_mono() >= rc->next_at)
        reconcile_soon(m, "timer");
    else if (reconcile_retry_is_due(rc))
        reconcile_soon(m, "retry");
}

void reconcile_init(struct manager *m)
{
    m->reconcile = xnew0(struct reconcile);
    m->reconcile->m = m;
}

void reconcile_free(struct manager *m)
{
    struct reconcile *rc = m->reconcile;

    reconcile_retry_done(rc);
    while (rc->queue) {
        struct recon_run *run = rc->queue;

        rc->queue = run->next;
        reconcile_run_free(run);
    }
    reconcile_run_free(TAKE_PTR(rc->last));
    rc->m = NULL;
    if (!rc->due)
        free(rc);
}

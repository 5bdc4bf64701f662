/*
 * The report of a run as JSON, during the run and afterwards.
 */
#include "daemon/core/reconcile/reconcile-internal.h"
#include "lib/base/cleanup.h"

const char *recon_action_name(enum recon_action a)
{
    static const char *const names[] = {
        [RECON_ADOPT] = "adopt", [RECON_RECREATE] = "recreate", [RECON_REMOVE] = "remove",
        [RECON_CLEAN] = "clean", [RECON_MARK] = "mark_stopped",
    };

    return names[a];
}

static const char *reconcile_report_result_name(const struct recon_item *item)
{
    static const char *const names[] = {"waiting", "done", "deferred", "failed"};

    if (item->result == RECON_DONE && item->run->options.dry_run)
        return "planned";
    return item->running ? "running" : names[item->result];
}

static json_t *reconcile_report_item_to_json(const struct recon_item *item)
{
    json_t *o = json_object();
    uint64_t now = time_mono();

    json_object_set_new(o, "engine", json_string(item->engine->ops->name));
    json_object_set_new(o, "kind", json_string(object_kind_name(item->kind)));
    json_object_set_new(o, "name", json_from_text(item->name));
    json_object_set_new(o, "id", item->id[0] ? json_string(item->id) : json_null());
    json_object_set_new(o, "action", json_string(recon_action_name(item->action)));
    json_object_set_new(o, "result", json_string(reconcile_report_result_name(item)));
    json_object_set_new(o, "reason", json_from_text(item->reason));
    json_object_set_new(o, "hint", json_from_text(item->hint));
    if (item->retry_at)
        json_object_set_new(o, "retry_in_ms",
                            json_integer((json_int_t)((item->retry_at - MIN(item->retry_at, now)) /
                                                      USEC_PER_MSEC)));
    return o;
}

struct reconcile_counts {
    size_t total, finished, by_result[RECON_FAILED + 1];
    size_t adopted, recreated, removed, cleaned, marked; /* successful, or planned */
};

static void reconcile_report_count_item(const struct recon_item *item, struct reconcile_counts *f)
{
    size_t *const by_action[] = {
        [RECON_ADOPT] = &f->adopted, [RECON_RECREATE] = &f->recreated, [RECON_REMOVE] = &f->removed,
        [RECON_CLEAN] = &f->cleaned, [RECON_MARK] = &f->marked,
    };

    f->by_result[item->result]++;
    if (item->result == RECON_DONE)
        ++*by_action[item->action];
}

static json_t *reconcile_report_counts_to_json(const struct reconcile_counts *f)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "adopted", (json_int_t)f->adopted,
                     "recreated", (json_int_t)f->recreated, "removed", (json_int_t)f->removed,
                     "cleaned", (json_int_t)f->cleaned, "marked_stopped", (json_int_t)f->marked,
                     "deferred", (json_int_t)f->by_result[RECON_DEFERRED], "failed",
                     (json_int_t)f->by_result[RECON_FAILED]);
}

static json_t *reconcile_report_run_to_json(const struct recon_run *run)
{
    json_t *o = json_object(), *results = json_array(), *troubles = json_array();
    struct reconcile_counts f = {0};

    for (size_t i = 0; i < run->n_lanes; i++) {
        const struct recon_lane *lane = &run->lanes[i];

        f.total += lane->n;
        f.finished += lane->finished;
        for (size_t k = 0; k < lane->n; k++) {
            reconcile_report_count_item(lane->items[k], &f);
            json_array_append_new(results, reconcile_report_item_to_json(lane->items[k]));
        }
        if (lane->trouble)
            json_array_append_new(troubles,
                                  json_pack("{s:s, s:o}", "engine", lane->engine->ops->name,
                                            "reason", json_from_text(lane->trouble)));
    }
    json_object_set_new(o, "run", json_integer((json_int_t)run->number));
    json_object_set_new(o, "trigger", json_string(run->options.trigger));
    json_object_set_new(o, "dry_run", json_boolean(run->options.dry_run));
    json_object_set_new(o, "from_engine", json_boolean(run->options.from_engine));
    json_object_set_new(o, "running", json_boolean(!run->ended_at));
    json_object_set_new(o, "started_at", json_from_time(run->started_at));
    json_object_set_new(o, "ended_at", json_from_time(run->ended_at));
    json_object_set_new(o, "took_ms", json_integer((json_int_t)(run->took / USEC_PER_MSEC)));
    json_object_set_new(o, "total", json_integer((json_int_t)f.total));
    json_object_set_new(o, "finished", json_integer((json_int_t)f.finished));
    json_object_set_new(o, "counts", reconcile_report_counts_to_json(&f));
    json_object_set_new(o, "unreachable", troubles);
    json_object_set_new(o, "results", results);
    return o;
}

json_t *reconcile_report(struct manager *m, uint64_t number)
{
    const struct reconcile *rc = m->reconcile;

    for (const struct recon_run *run = rc->queue; run; run = run->next)
        if (run->number == number || (!number && rc->begun))
            return reconcile_report_run_to_json(run);
    if (rc->last && (rc->last->number == number || !number))
        return reconcile_report_run_to_json(rc->last);
    return NULL;
}

/*
 * Changes of a spec that need no re-creation: leases and labels. They are not part of the
 * configuration hash. The store has the truth; the engine keeps a copy of the spec beside the
 * sandbox, in case the store is lost. Labels on an engine's own objects cannot change: they show
 * what was set when the object was created.
 */
#include "daemon/core/events/events.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"

static bool op_change_same(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
    return a->idle_stop == b->idle_stop && a->max_life == b->max_life &&
           a->rm_after == b->rm_after && strv_equal(a->labels, b->labels);
}

/* Gives *to the values of *from, and *from those of *to. */
static void op_change_swap(struct sandbox_spec *to, struct sandbox_spec *from)
{
    struct sandbox_spec before = *to;

    to->idle_stop = from->idle_stop;
    to->max_life = from->max_life;
    to->rm_after = from->rm_after;
    to->labels = from->labels;
    from->idle_stop = before.idle_stop;
    from->max_life = before.max_life;
    from->rm_after = before.rm_after;
    from->labels = before.labels;
}

static json_t *op_change_event(const struct sandbox_spec *spec)
{
    _cleanup_json_ json_t *all = spec_to_json(spec, NULL);
    static const char *const fields[] = {"idle_stop_ms", "max_life_ms", "rm_after_ms", "labels"};
    json_t *o = json_object();

    for (size_t i = 0; i < ARRAY_SIZE(fields); i++)
        json_object_set(o, fields[i], json_object_get(all, fields[i]));
    return o;
}

static int op_change_save(struct op *op, struct err *err)
{
    struct sandbox *sb = op->sb;
    int r;

    op_change_swap(&sb->spec, &op->want);
    r = sandbox_save(sb, err);
    if (r < 0) {
        op_change_swap(&sb->spec, &op->want);
        return r;
    }
    op->action = ACTION_CHANGED;
    events_emit(sb->m->config.events, "sandbox.changed", sb, NULL, op_change_event(&sb->spec));
    return 0;
}

/* A failure is only a warning: the store has the new values. */
static void op_change_noted(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    (void)info;
    if (err)
        manager_warn(op->sb->m, "sandbox %s: the engine cannot save its leases and labels: %s",
                     op->sb->name, err->msg);
    TAKE_PTR(op->then)(op);
}

void op_change_apply(struct op *op, op_step_fn then)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *text = NULL;
    struct sandbox *sb = op->sb;

    if (op_change_same(&sb->spec, &op->want)) {
        then(op);
    } else if (op_change_save(op, &err) < 0) {
        op_fail(op, &err);
    } else {
        op->then = then;
        text = spec_to_text(&sb->spec);
        engine_note(sb->engine, sb->id, text, op_change_noted, op);
    }
}

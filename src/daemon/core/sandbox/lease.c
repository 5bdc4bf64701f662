#include "daemon/core/sandbox/lease.h"

#include "daemon/core/events/events.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

struct lease_due {
    const char *by; /* NULL: nothing is due */
    bool remove;
    uint64_t in; /* usec */
};

static bool lease_is_up(enum sandbox_state s)
{
    return s == SANDBOX_RUNNING || s == SANDBOX_PAUSED || s == SANDBOX_STOPPING;
}

static bool lease_is_down(enum sandbox_state s)
{
    return s == SANDBOX_STOPPED || s == SANDBOX_FAILED;
}

void lease_moved(struct sandbox *sb, enum sandbox_state from)
{
    uint64_t now = lease_clock_now(&sb->m->lease_clock);

    if (lease_is_up(sb->state) && !lease_is_up(from))
        sb->up_at = sb->idle_at = now;
    /* A failed removal starts the clock again, so that it is not tried at every tick. */
    if (lease_is_down(sb->state) && !lease_is_down(from))
        sb->down_at = now;
}

void lease_touch(struct sandbox *sb)
{
    _cleanup_err_ struct err err = ERR_INIT;

    sb->idle_at = lease_clock_now(&sb->m->lease_clock);
    if (!sb->spec.idle_stop || !sb->stored || sb->ephemeral)
        return;
    if (store_sandbox_set_idle(sb->m->store, sb->id, sb->idle_at, &err) < 0)
        manager_warn(sb->m, "sandbox %s: cannot save the time of its last use: %s", sb->name,
                     err.msg);
}

void lease_load(struct sandbox *sb, uint64_t up_at, uint64_t idle_at, uint64_t down_at)
{
    uint64_t now = lease_clock_now(&sb->m->lease_clock);

    sb->up_at = up_at ? up_at : now;
    sb->idle_at = idle_at ? idle_at : now;
    sb->down_at = down_at ? down_at : now;
}

bool lease_equal(const struct sandbox_spec *a, const struct sandbox_spec *b)
{
    return a->idle_stop == b->idle_stop && a->max_life == b->max_life && a->rm_after == b->rm_after;
}

void lease_copy(struct sandbox_spec *to, const struct sandbox_spec *from)
{
    to->idle_stop = from->idle_stop;
    to->max_life = from->max_life;
    to->rm_after = from->rm_after;
}

static json_t *lease_ms(uint64_t usec)
{
    return json_integer((json_int_t)(usec / USEC_PER_MSEC));
}

static int lease_change(struct sandbox *sb, const struct sandbox_spec *from, struct err *err)
{
    struct sandbox_spec before = sb->spec; /* only for its numbers */
    int r;

    lease_copy(&sb->spec, from);
    r = sandbox_save(sb, err);
    if (r < 0) {
        lease_copy(&sb->spec, &before);
        return r;
    }
    events_emit(sb->m->config.events, "sandbox.changed", sb, NULL,
                json_pack("{s:o, s:o, s:o}", "idle_stop_ms", lease_ms(from->idle_stop),
                          "max_life_ms", lease_ms(from->max_life), "rm_after_ms",
                          lease_ms(from->rm_after)));
    return 0;
}

/* A failure is only a warning: the store has the leases. The copy beside the sandbox matters
 * when the store is lost. */
static void lease_noted(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    (void)info;
    if (err)
        manager_warn(op->sb->m, "sandbox %s: the engine cannot save its leases: %s", op->sb->name,
                     err->msg);
    TAKE_PTR(op->then)(op);
}

void lease_apply(struct op *op, op_step_fn then)
{
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_free_ char *text = NULL;
    struct sandbox *sb = op->sb;

    if (lease_equal(&sb->spec, &op->want)) {
        then(op);
    } else if (lease_change(sb, &op->want, &err) < 0) {
        op_fail(op, &err);
    } else {
        op->then = then;
        text = spec_to_text(&sb->spec);
        engine_note(sb->engine, sb->id, text, lease_noted, op);
    }
}

/* ---- what is due ---- */

static void lease_consider(struct lease_due *d, const struct sandbox *sb, const char *by,
                           uint64_t lease, uint64_t from, bool remove)
{
    uint64_t gone = lease_clock_since(&sb->m->lease_clock, from);
    uint64_t in = lease - MIN(lease, gone);

    if (lease && (!d->by || in < d->in))
        *d = (struct lease_due){by, remove, in};
}

static struct lease_due lease_next_due(const struct sandbox *sb)
{
    struct lease_due d = {0};

    if (sb->state == SANDBOX_RUNNING && !sb->n_execs && !sb->n_transfers)
        lease_consider(&d, sb, "idle_stop", sb->spec.idle_stop, sb->idle_at, false);
    if (sb->state == SANDBOX_RUNNING || sb->state == SANDBOX_PAUSED)
        lease_consider(&d, sb, "max_life", sb->spec.max_life, sb->up_at, false);
    if (lease_is_down(sb->state) && !sb->n_execs)
        lease_consider(&d, sb, "rm_after", sb->spec.rm_after, sb->down_at, true);
    return d;
}

json_t *lease_to_json(const struct sandbox *sb)
{
    struct lease_due d = lease_next_due(sb);
    char at[TIME_FORMAT_MAX];

    if (!d.by)
        return json_null();
    return json_pack("{s:s, s:o, s:s, s:s}", "at", time_format(time_wall() + d.in, at), "in_ms",
                     lease_ms(d.in), "action", d.remove ? "remove" : "stop", "by", d.by);
}

static char *lease_why(const struct sandbox *sb, const struct lease_due *d)
{
    char text[FORMAT_MAX];

    if (STREQ(d->by, "idle_stop"))
        return xasprintf("idle for %s", format_duration(sb->spec.idle_stop, text));
    if (STREQ(d->by, "max_life"))
        return xasprintf("reached its max life of %s", format_duration(sb->spec.max_life, text));
    return xasprintf("%s for %s", sandbox_state_name(sb->state),
                     format_duration(sb->spec.rm_after, text));
}

static void lease_carry_out(struct sandbox *sb)
{
    struct lease_due d = lease_next_due(sb);
    struct op *op;
    char *reason;

    if (!d.by || d.in)
        return;
    reason = lease_why(sb, &d);
    op = op_push(sb, d.remove ? &op_remove : &op_stop);
    op->grace = sb->m->config.stop_grace;
    op->why = reason;
}

void lease_tick(struct manager *m)
{
    struct sandbox *sb = NULL;

    lease_clock_tick(&m->lease_clock);
    for (size_t i = 0; !m->closing && manager_next(m, &i, &sb);)
        if (!sb->ops)
            lease_carry_out(sb);
}

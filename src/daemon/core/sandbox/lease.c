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

void lease_put(struct buf *b, const char *key, const struct sandbox *sb)
{
    struct lease_due d = lease_next_due(sb);

    if (!d.by) {
        json_put_string(b, key, NULL);
        return;
    }
    json_put_open(b, key, '{');
    json_put_time(b, "at", time_wall() + d.in);
    json_put_number(b, "in_ms", d.in / USEC_PER_MSEC);
    json_put_string(b, "action", d.remove ? "remove" : "stop");
    json_put_string(b, "by", d.by);
    json_put_close(b, '}');
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

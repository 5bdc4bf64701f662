/*
 * The state machine of a sandbox: the names, the table of legal changes, and sandbox_set_state(),
 * the only function that changes a state.
 */
#include <stdio.h>
#include <string.h>

#include "daemon/core/events/events.h"
#include "daemon/core/exec/exec-save.h"
#include "daemon/core/sandbox/lease.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"

static const char *const state_names[] = {
    [SANDBOX_ABSENT] = "absent",     [SANDBOX_CREATING] = "creating", [SANDBOX_RUNNING] = "running",
    [SANDBOX_PAUSED] = "paused",     [SANDBOX_STOPPING] = "stopping", [SANDBOX_STOPPED] = "stopped",
    [SANDBOX_REMOVING] = "removing", [SANDBOX_FAILED] = "failed",
};

#define TO(state) (1U << SANDBOX_##state)

/* The legal changes of state. Row: from; bits: to. */
static const uint32_t moves[] = {
    [SANDBOX_ABSENT] = TO(CREATING) | TO(STOPPED), /* STOPPED: rebuilt from its engine */
    [SANDBOX_CREATING] = TO(RUNNING) | TO(ABSENT) | TO(STOPPED) | TO(FAILED) | TO(REMOVING),
    [SANDBOX_RUNNING] = TO(PAUSED) | TO(STOPPING) | TO(STOPPED) | TO(FAILED) | TO(REMOVING),
    [SANDBOX_PAUSED] = TO(RUNNING) | TO(STOPPING) | TO(STOPPED) | TO(FAILED) | TO(REMOVING),
    [SANDBOX_STOPPING] = TO(STOPPED) | TO(RUNNING) | TO(PAUSED) | TO(FAILED) | TO(REMOVING),
    [SANDBOX_STOPPED] =
        TO(CREATING) | TO(RUNNING) | TO(PAUSED) | TO(STOPPED) | TO(FAILED) | TO(REMOVING),
    [SANDBOX_REMOVING] = TO(ABSENT) | TO(FAILED) | TO(REMOVING),
    [SANDBOX_FAILED] =
        TO(CREATING) | TO(RUNNING) | TO(PAUSED) | TO(STOPPED) | TO(FAILED) | TO(REMOVING),
};

const char *sandbox_state_name(enum sandbox_state s)
{
    return state_names[s];
}

const char *sandbox_shown_state(const struct sandbox *sb)
{
    return sandbox_is_unsure(sb) ? STATE_RECONCILING : sandbox_state_name(sb->state);
}

enum sandbox_state sandbox_state_parse(const char *name)
{
    for (int s = 0; s < SANDBOX_STATE_MAX; s++)
        if (STREQ(state_names[s], name))
            return (enum sandbox_state)s;
    return SANDBOX_STATE_MAX;
}

bool sandbox_state_may(enum sandbox_state from, enum sandbox_state to)
{
    return (moves[from] & (1U << to)) != 0;
}

/* spec: its text; NULL: the column is not written. */
static struct store_sandbox sandbox_state_to_row(const struct sandbox *sb, const char *spec)
{
    return (struct store_sandbox){
        .id = sb->id,
        .name = sb->name,
        .engine = sb->engine->ops->name,
        .spec = spec,
        .hash = sb->hash,
        .ephemeral = sb->ephemeral,
        .wanted = sb->want_running ? "running" : "stopped",
        .state = sandbox_state_name(sb->state),
        .reason = sb->reason,
        .since = sb->since,
        .created_at = sb->created_at,
        .up_at = sb->up_at,
        .idle_at = sb->idle_at,
        .down_at = sb->down_at,
    };
}

int sandbox_save(struct sandbox *sb, struct err *err)
{
    _cleanup_free_ char *spec = spec_to_text(&sb->spec);
    const struct store_sandbox row = sandbox_state_to_row(sb, spec);
    int r = store_sandbox_put(sb->m->store, &row, err);

    if (r < 0)
        return r;
    sb->stored = true;
    return 0;
}

void sandbox_forget_hash(struct sandbox *sb)
{
    _cleanup_err_ struct err err = ERR_INIT;

    sb->hash[0] = '\0';
    if (sandbox_save(sb, &err) < 0)
        manager_warn(sb->m, "sandbox %s: cannot be saved: %s", sb->name, err.msg);
}

static int sandbox_state_save(struct sandbox *sb, struct err *err)
{
    struct store_sandbox row;

    if (sb->state == SANDBOX_CREATING || (!sb->stored && sb->state != SANDBOX_ABSENT))
        return sandbox_save(sb, err);
    /* The next daemon removes an ephemeral sandbox in any state, so the state is not saved. */
    if (!sb->stored || sb->ephemeral || sb->state == SANDBOX_ABSENT)
        return 0;
    row = sandbox_state_to_row(sb, NULL);
    return store_sandbox_set_state(sb->m->store, &row, err);
}

/* The row takes those of its execs along, so what they have used is written in the same
 * transaction. */
static int sandbox_state_delete(struct sandbox *sb, struct err *err)
{
    struct manager *m = sb->m;
    int r = store_begin(m->store, err);

    if (r < 0)
        return r;
    r = exec_save_write(m, err);
    r = r < 0 ? r : store_sandbox_delete(m->store, sb->id, err);
    r = store_end(m->store, r, err);
    if (r >= 0)
        exec_save_written(m);
    return r;
}

/* Deletes the row. If that fails, the sandbox stays: the next daemon would load the row again,
 * and the name could not be reused until then. */
static int sandbox_state_forget(struct sandbox *sb, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;

    if (!sb->stored)
        return 0;
    if (sandbox_state_delete(sb, &why) < 0) {
        if (!sb->ephemeral) /* the next daemon removes ephemeral ones */
            return err_move(err, &why);
        manager_warn(sb->m, "sandbox %s: cannot be removed from the store: %s", sb->name, why.msg);
    }
    sb->stored = false;
    if (!sb->ephemeral)
        usage_totals_forget(&sb->m->usage_totals, sb->id);
    return 0;
}

static void sandbox_state_emit(const struct sandbox *sb, enum sandbox_state from)
{
    json_t *data = json_pack("{s:s}", "from", sandbox_state_name(from));
    char kind[EVENT_KIND_MAX];

    if (sb->reason) /* NULL, and left out, when an engine's text is not UTF-8 */
        json_object_set_new(data, "reason", json_string(sb->reason));
    if (sb->ephemeral)
        json_object_set_new(data, "ephemeral", json_true());
    if (sb->spec.isolation != SPEC_ISOLATION_SHARED)
        json_object_set_new(data, "isolation",
                            json_string(spec_isolation_name(sb->spec.isolation)));
    snprintf(kind, sizeof(kind), "sandbox.%s",
             sb->state == SANDBOX_ABSENT ? "removed" : sandbox_state_name(sb->state));
    events_emit(sb->m->config.events, kind, sb, NULL, data);
}

int sandbox_set_state(struct sandbox *sb, enum sandbox_state to, const char *why, struct err *err)
{
    _cleanup_err_ struct err save = ERR_INIT;
    enum sandbox_state from = sb->state;
    char *reason;

    if (!sandbox_state_may(from, to))
        return err_set(err, ERR_CONFLICT, "sandbox '%s' is %s, cannot become %s", sb->name,
                       sandbox_state_name(from), sandbox_state_name(to));
    if (to == SANDBOX_ABSENT && sandbox_state_forget(sb, err) < 0)
        return err_wrap(err, "remove sandbox '%s' from the store", sb->name);
    sb->state = to;
    sb->since = time_wall();
    reason = why ? xstrdup(why) : NULL; /* why may point to the old reason */
    free(sb->reason);
    sb->reason = reason;
    lease_moved(sb, from);
    if (sandbox_state_save(sb, &save) < 0) {
        if (from == SANDBOX_ABSENT) {
            sb->state = from;
            return err_move(err, &save);
        }
        manager_warn(sb->m, "sandbox %s: cannot save state '%s': %s", sb->name,
                     sandbox_state_name(to), save.msg);
    }
    sandbox_state_emit(sb, from);
    log_debug("sandbox %s: %s -> %s%s%s", sb->name, sandbox_state_name(from),
              sandbox_state_name(to), why ? ": " : "", why ? why : "");
    if (sb->m->config.on_state)
        sb->m->config.on_state(sb->m->config.arg, sb, from, to);
    return 0;
}

int sandbox_check_awake(const struct sandbox *sb, struct err *err)
{
    if (sb->state != SANDBOX_PAUSED)
        return 0;
    err_set(err, ERR_CONFLICT, "sandbox '%s' is paused", sb->name);
    return err_hint(err, "Resume it first: 'ripcord resume %s'.", sb->name);
}

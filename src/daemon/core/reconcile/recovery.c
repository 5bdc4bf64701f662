/*
 * Recovery at the start of the daemon: compares the stored sandboxes with those that live.
 *
 * For each stored sandbox an operation asks the engine for its supervisor. It connects to it, or
 * marks the sandbox stopped and cleans up its last run. Execs that ended meanwhile get the record
 * that their supervisor left. Ephemeral sandboxes are removed: their clients are gone. A few
 * sandboxes at a time, in the background. A request for a sandbox brings its recovery forward,
 * because its queue begins with it. When all states are known, reconcile compares the rest.
 */
#include <stdlib.h>

#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/exec/output-retention.h"
#include "daemon/core/reconcile/reconcile.h"
#include "daemon/core/sandbox/lease.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

enum { RECOVER_AT_ONCE = 16 };

struct recovery_waiter {
    struct recovery_waiter *next;
    uint64_t until; /* time_mono(): notified then at the latest; 0: no limit */
    manager_fn fn;
    void *arg;
};

struct recovery {
    struct manager *m;
    size_t pending; /* sandboxes whose state is not known yet */
    char **names;   /* of the sandboxes to examine, in this order */
    size_t next_name;
    char **unread; /* ids of rows that this version cannot read: not to be removed */
    unsigned due;  /* deferred calls that are still to come */
    struct recovery_waiter *waiters;
};

static void recovery_notify_waiters(struct recovery *r)
{
    while (!r->pending && r->waiters) {
        struct recovery_waiter *w = r->waiters;

        r->waiters = w->next;
        w->fn(w->arg);
        free(w);
    }
}

static void recovery_destroy(struct recovery *r)
{
    while (r->waiters) {
        struct recovery_waiter *w = r->waiters;

        r->waiters = w->next;
        free(w);
    }
    strv_free(r->names);
    strv_free(r->unread);
    free(r);
}

/* Counts a deferred call. False: the manager was freed, and the last call frees r. */
static bool recovery_take_turn(struct recovery *r)
{
    r->due--;
    if (r->m)
        return true;
    if (!r->due)
        recovery_destroy(r);
    return false;
}

static void recovery_defer(struct recovery *r, loop_fn fn)
{
    r->due++;
    loop_defer(r->m->loop, fn, r);
}

static void recovery_notify_later(void *arg)
{
    if (recovery_take_turn(arg))
        recovery_notify_waiters(arg);
}

bool recovery_is_done(const struct recovery *r)
{
    return r->pending == 0;
}

void recovery_wait(struct recovery *r, uint64_t limit, manager_fn fn, void *arg)
{
    struct recovery_waiter *w = xnew0(struct recovery_waiter), **at = &r->waiters;

    w->until = limit ? time_mono() + limit : 0;
    w->fn = fn;
    w->arg = arg;
    while (*at)
        at = &(*at)->next;
    *at = w;
    if (!r->pending)
        recovery_defer(r, recovery_notify_later);
}

static struct recovery_waiter *recovery_take_late(struct recovery *r)
{
    for (struct recovery_waiter **at = &r->waiters; *at; at = &(*at)->next) {
        struct recovery_waiter *w = *at;

        if (!w->until || time_mono() < w->until)
            continue;
        *at = w->next;
        return w;
    }
    return NULL;
}

void recovery_tick(struct recovery *r)
{
    struct recovery_waiter *w;

    while (r && (w = recovery_take_late(r))) {
        w->fn(w->arg);
        free(w);
    }
}

bool sandbox_is_unsure(const struct sandbox *sb)
{
    return (sb->ops && sb->ops->type == &op_recover) || (sb->torn && sb->unsettled);
}

static void recovery_start_next(struct recovery *r)
{
    struct sandbox *sb;

    while (r->names && r->names[r->next_name]) {
        sb = map_get(&r->m->sandboxes, r->names[r->next_name++]);
        /* It may have run already, because of a request for the sandbox. */
        if (sb && sb->ops && sb->ops->type == &op_recover && !sb->ops->running) {
            op_kick(sb);
            return;
        }
    }
}

static void recovery_done_one(struct recovery *r)
{
    r->pending--;
    recovery_start_next(r);
    recovery_notify_waiters(r);
}

void recovery_free(struct recovery *r)
{
    if (!r)
        return;
    r->m = NULL;
    if (!r->due)
        recovery_destroy(r);
}

/* ---- one sandbox ---- */

static void recovery_adopt_open_exec(void *arg, const struct store_exec *row)
{
    exec_adopt(arg, row);
}

/* Afterwards each open exec is live, or has ended with the record on disk or as engine_lost. */
static void recovery_settle_execs(struct sandbox *sb)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (store_exec_each_open(sb->m->store, sb->id, recovery_adopt_open_exec, sb, &err) < 0)
        manager_warn(sb->m, "sandbox %s: cannot read its execs: %s", sb->name, err.msg);
    for (struct exec *x = sb->execs, *next; x; x = next) {
        struct end_record rec;

        next = x->next;
        if (x->seq && exec_read_end(x->exec_root, sb->id, x->id, &rec, NULL) >= 0)
            exec_on_ended(sb, x->id, &rec);
    }
    exec_end_unbegun(sb);
    if (!sb->conn)
        exec_all_lost(sb);
}

static void recovery_finish(struct op *op, enum sandbox_state state, const char *why)
{
    struct recovery *r = op->sb->m->recovery;

    if (op->sb->state != state)
        sandbox_set_state(op->sb, state, why, NULL);
    op_done(op, ACTION_UNCHANGED);
    recovery_done_one(r);
}

/* Removes ephemeral and half-removed sandboxes: their clients are gone with the last daemon.
 * Their execs were settled before, so that a client that comes back learns their end. */
static bool recovery_removes(struct op *op)
{
    struct sandbox *sb = op->sb;
    struct recovery *r = sb->m->recovery;

    if (!sb->ephemeral && sb->state != SANDBOX_REMOVING)
        return false;
    op_push_front(sb, &op_remove)->force = true;
    op_done(op, ACTION_UNCHANGED);
    recovery_done_one(r);
    return true;
}

/* The last daemon was stopping it: the stop is carried out. */
static bool recovery_stops(struct op *op)
{
    struct sandbox *sb = op->sb;
    struct recovery *r = sb->m->recovery;
    struct op *stop;

    if (sb->state != SANDBOX_STOPPING || sb->want_running)
        return false;
    stop = op_push_front(sb, &op_stop);
    stop->grace = sb->m->config.stop_grace;
    stop->why = xstrdup(sb->reason ? sb->reason : STOPPED_ON_REQUEST);
    op_done(op, ACTION_UNCHANGED);
    recovery_done_one(r);
    return true;
}

static const char *recovery_why_stopped(const struct sandbox *sb)
{
    if (sb->state == SANDBOX_STOPPING)
        return sb->reason ? sb->reason : STOPPED_ON_REQUEST;
    return sb->state == SANDBOX_FAILED ? "cleaned up after a failure"
                                       : "not running when the daemon started";
}

static void recovery_settled(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;
    const char *why;
    enum sandbox_state state = sandbox_settled_state(op->sb, err, info, &why);

    recovery_finish(op, state, why);
}

static void recovery_cleaned(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;
    struct sandbox *sb = op->sb;

    (void)info;
    recovery_settle_execs(sb);
    if (recovery_removes(op))
        return;
    sb->torn |= sb->state == SANDBOX_CREATING;
    if (err)
        recovery_finish(op, SANDBOX_FAILED, err->msg);
    else if (sb->torn && engine_is_open(sb->engine))
        op_settle_with(op, recovery_settled);
    else if (sb->torn)
        recovery_finish(op, SANDBOX_FAILED, ENDED_IN_CREATION);
    else
        recovery_finish(op, SANDBOX_STOPPED, recovery_why_stopped(sb));
}

/* Whether the last daemon ended after it had started the sandbox with a new spec, and before it had
 * stored that spec: the stored one counts. */
static bool recovery_is_unstored(const struct sandbox *sb, const struct engine_sandbox *info)
{
    return sb->state == SANDBOX_CREATING && *info->hash && *sb->hash &&
           !STREQ(info->hash, sb->hash);
}

static void recovery_connected(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;
    struct sandbox *sb = op->sb;

    if (err && err->code == ERR_NOT_FOUND && engine_is_open(sb->engine)) {
        engine_cleanup(sb->engine, sb->id, recovery_cleaned, op);
        return;
    }
    if (err && err->code == ERR_NOT_FOUND) {
        /* An engine that may be unreachable must not delay recovery:
         * daemon/core/sandbox/engine-watch.c does the rest. */
        sb->unsettled = true;
        recovery_cleaned(op, NULL, NULL);
        return;
    }
    if (!err && recovery_is_unstored(sb, info)) {
        info->supervisor_fd = fd_close(info->supervisor_fd);
        engine_cleanup(sb->engine, sb->id, recovery_cleaned, op);
        return;
    }
    if (!err) {
        sandbox_connect(sb, info);
        recovery_settle_execs(sb);
    }
    if (recovery_removes(op))
        return;
    if (err) { /* it may still live: only the user decides what happens to it */
        sb->unsettled = true;
        manager_warn(sb->m, "sandbox %s: cannot be reached: %s", sb->name, err->msg);
        recovery_finish(op, SANDBOX_FAILED, err->msg);
        return;
    }
    if (recovery_stops(op))
        return;
    recovery_finish(op, info->state == ENGINE_SANDBOX_PAUSED ? SANDBOX_PAUSED : SANDBOX_RUNNING,
                    NULL);
}

static void recovery_op_run(struct op *op)
{
    engine_connect(op->sb->engine, op->sb->id, recovery_connected, op);
}

const struct op_type op_recover = {"recover", recovery_op_run};

struct op *recovery_add(struct sandbox *sb)
{
    sb->m->recovery->pending++;
    return op_push(sb, &op_recover);
}

char **recovery_unread(const struct recovery *r)
{
    return r->unread;
}

/* ---- the store's rows ---- */

static void recovery_load_row(void *arg, const struct store_sandbox *row)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct manager *m = arg;
    struct engine *engine = manager_engine(m, row->engine, &err);
    struct sandbox_spec spec;
    struct sandbox *sb;

    if (!engine || spec_from_text(row->spec, &spec, &err) < 0) {
        manager_warn(m, "sandbox %s: left unchanged: %s", row->name, err.msg);
        strv_add(&m->recovery->unread, row->id);
        return;
    }
    sb = sandbox_new(m, row->name);
    snprintf(sb->id, sizeof(sb->id), "%s", row->id);
    snprintf(sb->hash, sizeof(sb->hash), "%s", row->hash);
    sb->engine = engine;
    sb->spec = spec;
    spec_match_hash(&sb->spec, engine->ops->name, sb->hash);
    sb->ephemeral = row->ephemeral;
    sb->stored = true;
    sb->want_running = STREQ(row->wanted, "running");
    sb->since = row->since;
    sb->created_at = row->created_at;
    sb->reason = row->reason ? xstrdup(row->reason) : NULL;
    lease_load(sb, row->up_at, row->idle_at, row->down_at);
    sb->state = sandbox_state_parse(row->state);
    if (sb->state == SANDBOX_STATE_MAX || sb->state == SANDBOX_ABSENT)
        sb->state = SANDBOX_FAILED;
    op_push_lazy(sb, &op_recover);
    strv_add(&m->recovery->names, sb->name);
    m->recovery->pending++;
}

static void recovery_load_seqs(struct manager *m)
{
    struct sandbox *sb;

    for (size_t i = 0; manager_next(m, &i, &sb);) {
        uint64_t last = 0;

        store_exec_last_seq(m->store, sb->id, &last, NULL);
        sb->next_seq = last + 1;
        output_retention_load(sb);
    }
}

/* ---- start ---- */

/* Opens the engines that are wanted now, not at the first tick. */
static void recovery_open_engines(void *arg)
{
    struct recovery *r = arg;

    if (recovery_take_turn(r) && !r->m->closing)
        engine_watch_tick(r->m);
}

static void recovery_reconcile(void *arg)
{
    reconcile_soon(arg, "start");
}

int recovery_start(struct manager *m, struct err *err)
{
    struct recovery *r = xnew0(struct recovery);
    int n;

    r->m = m;
    m->recovery = r;
    n = store_sandbox_each(m->store, recovery_load_row, m, err);
    if (n < 0)
        return err_wrap(err, "load sandboxes");
    recovery_load_seqs(m);
    for (int i = 0; i < RECOVER_AT_ONCE; i++)
        recovery_start_next(r);
    recovery_defer(r, recovery_open_engines);
    recovery_wait(r, 0, recovery_reconcile, m);
    return 0;
}

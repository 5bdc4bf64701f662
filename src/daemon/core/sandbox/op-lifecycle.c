/*
 * The operations stop, remove, pause (and resume), lease, and reclaim, which cleans up after a
 * supervisor that ended by itself.
 */
#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/sandbox/lease.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "daemon/engine/engine-check.h"
#include "lib/base/cleanup.h"
#include "lib/loop/loop.h"

enum { FORGET_TRIES = 10 };
#define FORGET_PAUSE (200 * USEC_PER_MSEC)

static void op_done_in_state(struct op *op, enum sandbox_state state, const char *why)
{
    sandbox_set_state(op->sb, state, why, NULL);
    op_done(op, ACTION_UNCHANGED);
}

/* Takes the result of the engine's cleanup. False: it failed, and the operation has ended. */
static bool op_cleanup_succeeded(struct op *op, const struct err *err)
{
    op->sb->unsettled = err != NULL;
    if (!err)
        return true;
    sandbox_set_state(op->sb, SANDBOX_FAILED, err->msg, NULL);
    op_fail(op, err);
    return false;
}

/* True: the sandbox does not exist, and the operation has failed. */
static bool op_failed_absent(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (op->sb->state != SANDBOX_ABSENT)
        return false;
    err_set(&err, ERR_NOT_FOUND, "no sandbox '%s'", op->sb->name);
    op_fail(op, &err);
    return true;
}

/* ---- stop ---- */

static void op_stop_measured(void *arg, const struct err *err, const struct engine_usage *usage)
{
    struct op *op = arg;

    disk_budget_settle(op->sb, err, &usage->files);
    op_done_in_state(op, SANDBOX_STOPPED, op->why);
}

static void op_stop_cleaned(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    (void)info;
    if (!op_cleanup_succeeded(op, err))
        return;
    if (op->over_budget)
        engine_usage(op->sb->engine, op->sb->id, op_stop_measured, op);
    else
        op_done_in_state(op, SANDBOX_STOPPED, op->why);
}

static void op_stop_down(struct op *op)
{
    engine_cleanup(op->sb->engine, op->sb->id, op_stop_cleaned, op);
}

static void op_stop_run(struct op *op)
{
    struct sandbox *sb = op->sb;

    if (op_failed_absent(op))
        return;
    sb->want_running = false;
    if (sb->state == SANDBOX_STOPPED) {
        op_done(op, ACTION_UNCHANGED);
        return;
    }
    if (sb->conn)
        sandbox_set_state(sb, SANDBOX_STOPPING, op->why, NULL);
    op_down(op, op->grace, op_stop_down);
}

const struct op_type op_stop = {"stop", op_stop_run};

/* ---- remove: legal from every state ---- */

/* On a full disk the store cannot delete the row at once. The removed files make room soon. */
static void op_remove_from_store(void *arg)
{
    _cleanup_err_ struct err why = ERR_INIT;
    struct op *op = arg;

    if (sandbox_set_state(op->sb, SANDBOX_ABSENT, NULL, &why) >= 0) {
        op_done(op, ACTION_UNCHANGED);
        return;
    }
    if (op->tries++ < FORGET_TRIES) {
        if (!op->again)
            op->again = loop_timer_new(op->sb->m->loop, op_remove_from_store, op);
        loop_timer_set(op->again, FORGET_PAUSE, false);
        return;
    }
    err_hint(&why, "The files are deleted. Remove the sandbox again when the store is writable.");
    sandbox_set_state(op->sb, SANDBOX_FAILED, why.msg, NULL);
    op_fail(op, &why);
}

static void op_removed(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    (void)info;
    if (op_cleanup_succeeded(op, err))
        op_remove_from_store(op);
}

static void op_remove_down(struct op *op)
{
    engine_remove(op->sb->engine, op->sb->id, op_removed, op);
}

/* A failure is ignored here: the removal reports it. */
static void op_remove_ended(void *arg, const struct err *err, struct engine_sandbox *info)
{
    (void)err;
    (void)info;
    op_remove_down(arg);
}

static void op_remove_run(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;

    if (op_failed_absent(op))
        return;
    if (sb->n_execs && !op->force) {
        err_set(&err, ERR_CONFLICT, "sandbox '%s': %u exec(s) are running", sb->name, sb->n_execs);
        err_hint(&err, "Wait until they end, or force the removal with 'ripcord rm -f'.");
        op_fail(op, &err);
        return;
    }
    sandbox_set_state(sb, SANDBOX_REMOVING, op->why, NULL);
    if (!sb->engine->ops->removes_running || sb->n_execs || sb->n_transfers) {
        op_down(op, 0, op_remove_down);
        return;
    }
    /* Nobody waits for an end record, so the sandbox is removed without a stop before. */
    sandbox_unlink(sb);
    if (engine_ends_first(sb->engine))
        engine_end(sb->engine, sb->id, op_remove_ended, op);
    else
        op_remove_down(op);
}

const struct op_type op_remove = {"remove", op_remove_run};

/* ---- pause and resume ---- */

static void op_pause_done(void *arg, const struct err *err, int fd)
{
    struct op *op = arg;

    fd_close(fd);
    if (err) {
        op_fail(op, err);
        return;
    }
    op_done_in_state(op, op->on ? SANDBOX_PAUSED : SANDBOX_RUNNING, NULL);
}

/* An exec that is frozen while it starts would leave its client without an answer: pause waits
 * for its start. One that is not sent yet waits for its own turn in the queue, behind this one. */
static struct exec *op_pause_find_starting(const struct sandbox *sb)
{
    for (struct exec *x = sb->execs; x; x = x->next)
        if (exec_is_sent(x) && x->state == EXEC_STARTING)
            return x;
    return NULL;
}

static void op_pause_run(struct op *op);

static void op_pause_exec_started(void *arg, enum exec_event event _unused_)
{
    struct op *op = arg;

    exec_watch_remove(op->starting, &op->watch);
    exec_unref(TAKE_PTR(op->starting));
    op_pause_run(op);
}

void op_pause_lost(struct sandbox *sb)
{
    if (sb->ops && sb->ops->starting)
        op_pause_exec_started(sb->ops, EXEC_EVENT_ENDED);
}

static void op_pause_run(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;
    enum sandbox_state from = op->on ? SANDBOX_RUNNING : SANDBOX_PAUSED;
    enum sandbox_state to = op->on ? SANDBOX_PAUSED : SANDBOX_RUNNING;
    struct exec *starting;

    if (sb->state == to) {
        op_done(op, ACTION_UNCHANGED);
        return;
    }
    if (sb->state != from || !sb->conn) {
        err_set(&err, ERR_CONFLICT, "sandbox '%s' is %s, not %s", sb->name,
                sandbox_state_name(sb->state), sandbox_state_name(from));
        err_hint(&err, "Start it with 'ripcord up %s'.", sb->name);
    } else if (sandbox_spec_is_confined(&sb->spec)) {
        err_set(&err, ERR_UNSUPPORTED, "isolation 'confined' cannot pause a sandbox");
        err_hint(&err, "Stop it with 'ripcord stop %s': its files stay.", sb->name);
    } else if (engine_is_open(sb->engine) && !(sb->engine->caps & ENGINE_CAP_PAUSE)) {
        err_set(&err, ERR_UNSUPPORTED, "engine '%s' cannot pause on this machine",
                sb->engine->ops->name);
        err_hint(&err, "Free the memory with 'ripcord stop'.");
        engine_check_lack(sb->engine, ENGINE_CAP_PAUSE, &err);
    }
    if (err.code) {
        op_fail(op, &err);
        return;
    }
    starting = op->on ? op_pause_find_starting(sb) : NULL;
    if (!starting) {
        supervisor_conn_pause(sb->conn, op->on, op_pause_done, op);
        return;
    }
    op->starting = exec_ref(starting);
    op->watch = (struct exec_watch){.fn = op_pause_exec_started, .arg = op};
    exec_watch_add(starting, &op->watch);
}

const struct op_type op_pause = {"pause", op_pause_run};

/* ---- leases ---- */

static void op_lease_done(struct op *op)
{
    op_done(op, op->action);
}

static void op_lease_run(struct op *op)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sandbox *sb = op->sb;

    if (op_failed_absent(op))
        return;
    sandbox_spec_copy(&op->want, &sb->spec);
    if (spec_apply_leases(&op->want, op->patch, &err) < 0)
        op_fail(op, &err);
    else
        op_change_apply(op, op_lease_done);
}

const struct op_type op_lease = {"lease", op_lease_run};

/* ---- reclaim: cleans up after a supervisor that ended by itself ---- */

static void op_reclaim_done(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct op *op = arg;

    (void)info;
    if (op_cleanup_succeeded(op, err))
        op_done(op, ACTION_UNCHANGED);
}

static void op_reclaim_run(struct op *op)
{
    struct sandbox *sb = op->sb;

    /* An earlier operation may have cleaned up, or even started it again. */
    if (sb->conn || sb->state == SANDBOX_ABSENT) {
        op_done(op, ACTION_UNCHANGED);
        return;
    }
    engine_cleanup(sb->engine, sb->id, op_reclaim_done, op);
}

const struct op_type op_reclaim = {"reclaim", op_reclaim_run};

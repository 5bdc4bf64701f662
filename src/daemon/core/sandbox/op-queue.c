/*
 * Only op_kick_cb() starts an operation, on a turn of the loop of its own. So no operation begins
 * inside the call that queued it, and a waiter may queue the next one.
 */
#include "daemon/core/sandbox/op-queue.h"

#include <stdlib.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

/* Time after the grace in which the supervisor kills, drains and writes end records. */
#define DOWN_SLACK (10 * USEC_PER_SEC)

static struct op *op_new(struct sandbox *sb, const struct op_type *type)
{
    struct op *op = xnew0(struct op);

    op->type = type;
    op->sb = sb;
    return op;
}

static void op_free(struct op *op)
{
    for (struct op_waiter *w = op->waiters, *next; w; w = next) {
        next = w->next;
        free(w);
    }
    if (op->starting)
        exec_watch_remove(op->starting, &op->watch);
    exec_unref(op->starting);
    json_decref(op->patch);
    loop_timer_free(op->again);
    free(op->why);
    free(op->spec_text);
    free(op->spec_label);
    free(op->was_why);
    err_done(&op->failure);
    sandbox_spec_done(&op->want);
    free(op);
}

static const struct err closing_err = {.code = ERR_ENGINE,
                                       .msg = (char *)"the daemon is shutting down",
                                       .hint = (char *)"Try again when the daemon has restarted."};

static void op_kick_cb(void *arg)
{
    struct sandbox *sb = arg;
    struct op *op = sb->ops;

    sb->kicked = false;
    if (!sb->m) { /* the manager was freed meanwhile */
        free(sb);
        return;
    }
    if (!op) {
        sandbox_maybe_free(sb);
    } else if (!op->running) {
        op->running = true;
        if (sb->m->closing)
            op_fail(op, &closing_err);
        else
            op->type->run(op);
    }
}

void op_kick(struct sandbox *sb)
{
    if (sb->kicked)
        return;
    sb->kicked = true;
    loop_defer(sb->m->loop, op_kick_cb, sb);
}

struct op *op_push_lazy(struct sandbox *sb, const struct op_type *type)
{
    struct op *op = op_new(sb, type), **at = &sb->ops;

    while (*at)
        at = &(*at)->next;
    *at = op;
    return op;
}

struct op *op_push(struct sandbox *sb, const struct op_type *type)
{
    struct op *op = op_push_lazy(sb, type);

    op_kick(sb);
    return op;
}

struct op *op_push_front(struct sandbox *sb, const struct op_type *type)
{
    struct op *op = op_new(sb, type), **at = &sb->ops;

    if (*at && (*at)->running)
        at = &(*at)->next;
    op->next = *at;
    *at = op;
    op_kick(sb);
    return op;
}

struct op *op_last(const struct sandbox *sb)
{
    struct op *op = sb->ops;

    while (op && op->next)
        op = op->next;
    return op;
}

void op_wait(struct op *op, manager_done_fn done, void *arg)
{
    struct op_waiter *w, **at = &op->waiters;

    if (!done)
        return;
    w = xnew0(struct op_waiter);
    w->done = done;
    w->arg = arg;
    while (*at)
        at = &(*at)->next;
    *at = w;
}

void op_drop_all(struct sandbox *sb)
{
    while (sb->ops) {
        struct op *op = sb->ops;

        sb->ops = op->next;
        op_free(op);
    }
}

/* Leaves the queue first: a waiter may queue the next operation. */
static void op_finish(struct op *op, const struct err *err)
{
    struct sandbox *sb = op->sb;
    bool pending = sb->kicked; /* a second turn would find the object freed by the first */

    sb->ops = op->next;
    sb->kicked = true; /* keeps the object while the waiters are called */
    for (struct op_waiter *w = op->waiters; w; w = w->next) {
        w->done(w->arg, err, sb->state == SANDBOX_ABSENT ? NULL : sb, op->action);
        op->action = ACTION_UNCHANGED; /* those that joined came to what the first one has done */
    }
    op_free(op);
    sb->kicked = pending;
    op_kick(sb);
}

void op_done(struct op *op, enum manager_action action)
{
    op->action = action;
    op_finish(op, NULL);
}

void op_fail(struct op *op, const struct err *err)
{
    log_debug("sandbox %s: %s: %s", op->sb->name, op->type->verb, err->msg);
    op_finish(op, err);
}

/* ---- ending a run ---- */

static void op_stop_result(void *arg, const struct err *err, int fd)
{
    const struct sandbox *sb = arg;

    fd_close(fd);
    /* The operation goes on: the connection closes, or the deadline passes. */
    if (err)
        log_debug("sandbox %s: stop: %s", sb->name, err->msg);
}

void op_down(struct op *op, uint64_t grace, op_step_fn then)
{
    struct sandbox *sb = op->sb;

    if (!sb->conn) {
        then(op);
        return;
    }
    op->on_down = then;
    op->deadline = time_mono() + grace + DOWN_SLACK;
    supervisor_conn_stop(sb->conn, grace, op->type == &op_remove, op_stop_result, sb);
}

int op_conn_closed(struct sandbox *sb)
{
    struct op *op = sb->ops;
    op_step_fn then;

    if (!op || !op->running || !op->on_down)
        return 0;
    then = op->on_down;
    op->on_down = NULL;
    op->deadline = 0;
    then(op);
    return 1;
}

static void op_forced_down(void *arg, const struct err *err, struct engine_sandbox *info)
{
    struct manager *m = arg;

    (void)info;
    m->background_calls--;
    if (err)
        manager_warn(m, "cannot kill a supervisor: %s", err->msg);
}

void op_check_deadline(struct sandbox *sb)
{
    struct op *op = sb->ops;

    if (!op || !op->deadline || time_mono() < op->deadline)
        return;
    if (op->forced) {
        manager_warn(sb->m,
                     "sandbox %s: the connection to its supervisor does not close, cutting it",
                     sb->name);
        sandbox_unlink(sb);
        op_conn_closed(sb);
        return;
    }
    /* The engine kills the supervisor. Its connection then closes after all its events have
     * come. */
    manager_warn(sb->m, "sandbox %s: its supervisor does not end, killing it", sb->name);
    op->forced = true;
    op->deadline = time_mono() + DOWN_SLACK;
    sb->m->background_calls++;
    engine_cleanup(sb->engine, sb->id, op_forced_down, sb->m);
}

/*
 * The serial queue of operations of a sandbox. An operation is a chain of steps: each step starts
 * one asynchronous call, whose answer runs the next step. op_done() or op_fail() ends the
 * operation, answers its waiters and starts the next one in the queue.
 */
#pragma once

#include "daemon/core/exec/exec.h"
#include "daemon/core/sandbox/manager.h"

struct op;
typedef void (*op_step_fn)(struct op *op);

struct op_type {
    const char *verb;
    op_step_fn run;
};

struct op_waiter {
    struct op_waiter *next;
    manager_done_fn done;
    void *arg;
};

struct op {
    const struct op_type *type;
    struct sandbox *sb;
    struct op *next;
    struct op_waiter *waiters;
    bool running;

    /* the request */
    json_t *patch; /* ensure: owned, or NULL */
    uint64_t grace;
    bool force, on;
    bool existing;    /* ensure: start the sandbox, never create it */
    bool down;        /* renew: the sandbox was stopped and stays so */
    bool over_budget; /* stop: its disk space is measured when it is down */
    char *why;        /* owned: for the state's reason, or NULL */

    /* progress */
    struct sandbox_spec want; /* ensure: the spec after the patch */
    char want_hash[65];
    char *spec_text, *spec_label; /* of the sandbox, for the engine; owned */
    op_step_fn then;              /* runs when the package cache or the engine has answered */
    op_step_fn on_down;           /* runs when the supervisor's connection is closed */
    struct exec *starting;        /* pause: reference to an exec whose start is awaited, or NULL */
    struct exec_watch watch;      /* of that exec */
    uint64_t deadline;            /* time_mono() when on_down is overdue; 0: none */
    bool forced;              /* the first deadline has passed and the engine was asked to kill */
    struct loop_timer *again; /* remove: retries the removal from the store; or NULL */
    unsigned tries;
    enum manager_action action;

    /* re-creation: what the sandbox was, and the failure of the new spec */
    enum sandbox_state was;
    bool was_up;
    char *was_why; /* owned, or NULL */
    struct err failure;
};

extern const struct op_type op_ensure, op_stop, op_remove, op_pause, op_lease, op_reclaim, op_renew,
    op_settle;
/* ERR_CONFLICT with the reason when the sandbox cannot be re-created now. */
int op_renew_check(const struct sandbox *sb, struct err *err);

/* A request to the engine. It borrows the spec, and texts of op. */
void op_fill_request(struct op *op, const struct sandbox_spec *spec, const char *hash,
                     struct sandbox_request *req);
/* Re-creates the sandbox for op->want, and ends the operation. */
void op_recreate(struct op *op);
/* Makes the engine's objects those of the stored spec (engine_settle()). done() gets op. */
void op_settle_with(struct op *op, engine_done_fn done);
/* Saves the leases and labels of op->want in the store and beside the sandbox on the engine, if
 * they changed. Then calls `then`, or fails the operation. */
void op_change_apply(struct op *op, op_step_fn then);

/* Appends an operation, or inserts it before all that have not begun. It runs soon. */
struct op *op_push(struct sandbox *sb, const struct op_type *type);
struct op *op_push_front(struct sandbox *sb, const struct op_type *type);
/* Appends an operation that waits for op_kick(), or for another one queued after it. */
struct op *op_push_lazy(struct sandbox *sb, const struct op_type *type);
struct op *op_last(const struct sandbox *sb);
void op_wait(struct op *op, manager_done_fn done, void *arg);
void op_kick(struct sandbox *sb);     /* runs the first operation on the next turn of the loop */
void op_drop_all(struct sandbox *sb); /* at shutdown: waiters are not called */

void op_done(struct op *op, enum manager_action action);
void op_fail(struct op *op, const struct err *err);

/* Ends the sandbox's run: asks the supervisor to stop, and calls `then` when it has ended, or
 * was killed after the deadline. Calls `then` at once when there is no supervisor. */
void op_down(struct op *op, uint64_t grace, op_step_fn then);
/* The supervisor's connection is closed: returns 1 when the running operation waited for that. */
int op_conn_closed(struct sandbox *sb);
/* The sandbox went down by itself: ends a pause that waits for the start of a command. */
void op_pause_lost(struct sandbox *sb);
void op_check_deadline(struct sandbox *sb);

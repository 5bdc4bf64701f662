/*
 * Operations on one sandbox: a serial queue per sandbox. An operation is a small chain of steps;
 * each step starts one asynchronous call whose answer runs the next. It ends with op_done() or
 * op_fail(), which answers everybody who waits for it and starts the next in the queue.
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

    /* what is asked */
    json_t *patch; /* ensure: owned, or NULL */
    uint64_t grace;
    bool force, on;
    bool existing; /* ensure: start it, but never make a new one */
    bool down;     /* renew: it was not running, and stays so */
    char *why;     /* owned: for the state's reason, or NULL */

    /* on the way */
    struct sandbox_spec want; /* ensure: the spec after the patch */
    char want_hash[65];
    char *spec_text, *spec_label; /* of the sandbox, for the engine */
    op_step_fn then;              /* waits for the package registry, or for a note */
    op_step_fn on_down;           /* waits for the link's end */
    struct exec *starting;        /* pause: a reference to an exec that is waited for, or NULL */
    struct exec_watch watch;      /* of it */
    uint64_t deadline;            /* time_mono() when the wait for it is over; 0: none */
    bool forced;                  /* the first deadline has passed */
    struct loop_timer *again;     /* remove: until the store can forget it; or NULL */
    unsigned tries;
    enum manager_action action;
};

extern const struct op_type op_ensure, op_stop, op_remove, op_pause, op_lease, op_reclaim, op_renew;
/* Why it cannot be re-created now: ERR_CONFLICT. */
int op_renew_check(const struct sandbox *sb, struct err *err);

/* Appends (or puts before all that has not begun) and sees that it runs soon. */
struct op *op_push(struct sandbox *sb, const struct op_type *type);
struct op *op_push_front(struct sandbox *sb, const struct op_type *type);
/* Appends, to be run when op_kick() is called or something is queued behind it. */
struct op *op_push_lazy(struct sandbox *sb, const struct op_type *type);
struct op *op_last(const struct sandbox *sb);
void op_wait(struct op *op, manager_done_fn done, void *arg);
void op_kick(struct sandbox *sb); /* runs the first one, if it does not run yet, on the next turn */
void op_drop_all(struct sandbox *sb); /* at shutdown: nobody is told */

void op_done(struct op *op, enum manager_action action);
void op_fail(struct op *op, const struct err *err);

/* Ends the sandbox's run: asks the supervisor to stop and calls `then` when it has gone, or is
 * late. `then` runs at once when there is no supervisor. */
void op_down(struct op *op, uint64_t grace, op_step_fn then);
/* The link has closed: 1 when the running operation has waited for it. */
int op_conn_closed(struct sandbox *sb);
void op_check_deadline(struct sandbox *sb);

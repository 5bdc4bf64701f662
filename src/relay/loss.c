/*
 * A command of which its guest says no more: it was killed from inside (it runs as the sandbox's
 * user), it broke the rules, it does not answer to KILL, the container stopped, or the engine has
 * gone. The engine is asked how the guest ended, what is left of the command is killed (`guest
 * reap`), and the exec ends with what is then known, never with a status that nobody reported.
 */
#include <signal.h>
#include <string.h>

#include "base/log.h"
#include "base/xalloc.h"
#include "relay/relay.h"

#define LOSS_STATUS_TIMEOUT (3 * USEC_PER_SEC)

enum { STATUS_KILLED = 128 + SIGKILL };

struct loss {
    struct work work;
    struct relay_exec *x; /* NULL: it is over */
    struct err why;       /* the guest's fault, or none */
    char *exec_id, user[RELAY_USER_MAX + 1];
    uint32_t *spare;
    size_t n_spare;
    /* what was found out; work.err: nothing */
    struct box box;
    int status; /* of the guest, or -1 */
    struct err status_err, reap_err;
};

static void loss_free(struct loss *l)
{
    err_done(&l->work.err);
    err_done(&l->why);
    err_done(&l->status_err);
    err_done(&l->reap_err);
    free(l->exec_id);
    free(l->spare);
    free(l);
}

/* On the loop: nothing is half-open now, so these are all guests that there are. */
static void prepare(struct work *w)
{
    struct loss *l = container_of(w, struct loss, work);
    size_t n = 0;

    for (struct line *at = w->relay->lines; at; at = at->next)
        n++;
    l->spare = xcalloc(n + 1, sizeof(*l->spare));
    for (struct line *at = w->relay->lines; at; at = at->next)
        if (at->state == LINE_UP)
            l->spare[l->n_spare++] = at->guest_pid;
}

static void run(struct work *w)
{
    struct loss *l = container_of(w, struct loss, work);
    struct deadline by = deadline_in(RELAY_CALL_TIMEOUT), soon;

    if (call_inspect(w->relay, &by, &l->box, &w->err) < 0 || l->box.life == LIFE_GONE)
        return;
    if (l->box.life == LIFE_RUNNING)
        call_reap(w->relay, l->user, l->spare, l->n_spare, &by, &l->reap_err);
    soon = deadline_in(LOSS_STATUS_TIMEOUT);
    if (l->exec_id)
        call_exec_status(w->relay, l->exec_id, &soon, &l->status, &l->status_err);
}

/* With its container every process of it was killed. */
static void ended_with_container(struct relay *r, struct relay_exec *x)
{
    relay_gone(r);
    x->exec.fed = false;
    if (x->exec.state == EXEC_STARTING) {
        _cleanup_err_ struct err err = ERR_INIT;

        err_set(&err, ERR_CONFLICT, "the sandbox stopped before the command had started");
        exec_fail_start(&x->exec, &err);
        return;
    }
    x->exec.wait_status = SIGKILL;
    exec_main_ended(&x->exec);
}

/* Why its end is not known, from the strongest reason to the weakest. */
static void explain(struct loss *l, struct err *err)
{
    if (l->work.err.code) {
        err_move(err, &l->work.err);
        err_wrap(err, "the engine cannot be asked how the command ended");
    } else if (l->why.code) {
        err_move(err, &l->why);
    } else if (l->status_err.code) {
        err_move(err, &l->status_err);
        err_wrap(err, "the engine does not know how the command ended");
    } else {
        err_set(err, ERR_ENGINE,
                "the guest beside the command ended with status %d and no report of it", l->status);
    }
}

static void conclude(struct loss *l, struct relay_exec *x)
{
    _cleanup_err_ struct err err = ERR_INIT;
    bool killed = !l->work.err.code && l->status == STATUS_KILLED;

    if (l->reap_err.code)
        log_warn("exec %s: processes of it may be left: %s", x->exec.id, l->reap_err.msg);
    if (x->exec.state == EXEC_STARTING) {
        explain(l, &err);
        exec_fail_start(&x->exec, &err);
    } else if (killed && (!l->why.code || x->exec.killed)) {
        x->exec.fed = false;
        x->exec.wait_status = SIGKILL;
        exec_main_ended(&x->exec);
    } else {
        explain(l, &err);
        exec_lose(&x->exec, &err);
    }
}

static void done(struct work *w)
{
    struct loss *l = container_of(w, struct loss, work);
    struct relay_exec *x = l->x;

    if (x) {
        x->loss = NULL;
        if (w->relay->sup.gone || (!w->err.code && l->box.life == LIFE_GONE))
            ended_with_container(w->relay, x);
        else
            conclude(l, x);
    }
    loss_free(l);
}

void loss_begin(struct relay_exec *x, const struct err *why)
{
    struct relay *r = x->line.relay;
    struct loss *l;

    if (x->loss)
        return;
    if (r->sup.gone) {
        ended_with_container(r, x);
        return;
    }
    l = xnew0(struct loss);
    l->work = (struct work){.kind = WORK_REAP, .prepare = prepare, .run = run, .done = done};
    l->x = x;
    l->status = -1;
    if (why)
        err_copy(&l->why, why);
    if (x->line.exec_id)
        l->exec_id = xstrdup(x->line.exec_id);
    snprintf(l->user, sizeof(l->user), "%s", x->user);
    x->loss = &l->work;
    work_submit(r, &l->work);
}

void loss_forget(struct relay_exec *x)
{
    if (x->loss)
        container_of(x->loss, struct loss, work)->x = NULL;
    x->loss = NULL;
}

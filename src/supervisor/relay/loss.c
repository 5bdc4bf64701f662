/*
 * A command whose guest is lost: a process inside killed it (it runs as the sandbox's user), it
 * broke the protocol, it does not answer KILL, the container stopped, or the engine is gone. The
 * relay asks the engine how the guest ended and kills the rest of the command (`guest reap`). The
 * exec then ends with what is known, never with a status that nobody reported.
 */
#include <poll.h>
#include <signal.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "supervisor/relay/relay.h"

#define LOSS_STATUS_TIMEOUT (3 * USEC_PER_SEC)
#define ORPHANS_RETRY (10 * USEC_PER_SEC)
#define LOSS_GONE_TIMEOUT (2 * USEC_PER_SEC)

enum { STATUS_SIGNAL = 128, LOSS_GONE_POLL_MS = 50 };

struct loss {
    struct relay_work work;
    struct relay_exec *x; /* NULL: the exec is over */
    struct err why;       /* the guest's protocol error, if any */
    char *exec_id, user[RELAY_USER_MAX + 1];
    uint32_t guest_pid;
    /* results; empty if work.err is set */
    struct relay_container container;
    int status; /* of the guest, or -1 */
    struct err status_err, reap_err;
};

struct orphan {
    struct orphan *next;
    uint32_t guest_pid;
    char user[RELAY_USER_MAX + 1];
};

static void loss_free(struct loss *l)
{
    err_done(&l->work.err);
    err_done(&l->why);
    err_done(&l->status_err);
    err_done(&l->reap_err);
    free(l->exec_id);
    free(l);
}

/* True if the container is gone, or ends within a moment. */
static bool loss_await_gone(const struct relay *r, const struct deadline *by,
                            struct relay_container *container, struct err *err)
{
    struct deadline soon = deadline_in(LOSS_GONE_TIMEOUT);

    do {
        if (call_inspect(r, by, container, err) < 0)
            return true;
        if (container->life == LIFE_GONE)
            return true;
        poll(NULL, 0, LOSS_GONE_POLL_MS);
    } while (!deadline_passed(&soon));
    return false;
}

static void loss_run(struct relay_work *w)
{
    struct loss *l = container_of(w, struct loss, work);
    struct deadline by = deadline_in(RELAY_CALL_TIMEOUT), soon;

    if (call_inspect(w->relay, &by, &l->container, &w->err) < 0 || l->container.life == LIFE_GONE)
        return;
    if (l->container.life == LIFE_RUNNING)
        call_reap(w->relay, l->user, l->guest_pid, &by, &l->reap_err);
    /* When a container dies, its streams end some time before the engine reports it. */
    if (l->reap_err.code && loss_await_gone(w->relay, &by, &l->container, &w->err))
        return;
    soon = deadline_in(LOSS_STATUS_TIMEOUT);
    if (l->exec_id)
        call_exec_status(w->relay, l->exec_id, &soon, &l->status, &l->status_err);
}

/* Processes of the command may still run, because the engine is away, the container is frozen, or
 * the container is at its process limit. We remember the guest and try again later. */
static void loss_orphan_add(const struct loss *l)
{
    struct relay *r = l->work.relay;
    const char *why = l->work.err.msg ? l->work.err.msg : l->reap_err.msg;
    struct orphan *o = xnew0(struct orphan);

    log_warn("sandbox %s: processes of a lost command may still run: %s", r->plan.sandbox_id,
             why ? why : "the sandbox is paused");
    o->guest_pid = l->guest_pid;
    memcpy(o->user, l->user, sizeof(o->user));
    o->next = r->orphans;
    r->orphans = o;
    r->orphans_at = time_mono() + ORPHANS_RETRY;
}

/* The end of the container killed all processes of the command. */
static void loss_ended_with_container(struct relay *r, struct relay_exec *x)
{
    relay_gone(r);
    x->exec.fed = false;
    if (x->exec.state == EXEC_STARTING) {
        _cleanup_err_ struct err err = ERR_INIT;

        err_set(&err, ERR_CONFLICT, "the sandbox stopped before the command started");
        exec_fail_start(&x->exec, &err);
        return;
    }
    x->exec.wait_status = SIGKILL;
    exec_main_ended(&x->exec);
}

/* The reason why the end is unknown, the strongest reason first. */
static void loss_explain(struct loss *l, struct err *err)
{
    if (l->work.err.code) {
        err_move(err, &l->work.err);
        err_wrap(err, "cannot ask the engine how the command ended");
    } else if (l->why.code) {
        err_move(err, &l->why);
    } else if (l->status_err.code) {
        err_move(err, &l->status_err);
        err_wrap(err, "the engine does not know how the command ended");
    } else {
        err_set(err, ERR_ENGINE,
                "the command's guest ended with status %d without reporting how the command ended",
                l->status);
    }
}

static void loss_conclude(struct loss *l, struct relay_exec *x)
{
    _cleanup_err_ struct err err = ERR_INIT;
    /* A guest ends by a signal only if a process inside sends one. If the command still ran then,
     * reaping has killed it. */
    bool killed = !l->work.err.code && l->status > STATUS_SIGNAL;

    if (killed && (!l->why.code || x->exec.killed)) {
        /* The command may have killed the guest before the guest could report its start. */
        if (x->exec.state == EXEC_STARTING)
            exec_started(&x->exec, -1);
        x->exec.fed = false;
        x->exec.wait_status = SIGKILL;
        exec_main_ended(&x->exec);
        return;
    }
    loss_explain(l, &err);
    if (x->exec.state == EXEC_STARTING)
        exec_fail_start(&x->exec, &err);
    else
        exec_lose(&x->exec, &err);
}

static void loss_done(struct relay_work *w)
{
    struct loss *l = container_of(w, struct loss, work);
    struct relay_exec *x = l->x;

    bool gone = w->relay->sup.gone || (!w->err.code && l->container.life == LIFE_GONE);

    w->relay->oom |= l->container.oom;
    if (x)
        x->loss = NULL;
    if (!gone && (w->err.code || l->reap_err.code || l->container.life == LIFE_PAUSED))
        loss_orphan_add(l);
    if (x && gone)
        loss_ended_with_container(w->relay, x);
    else if (x)
        loss_conclude(l, x);
    loss_free(l);
}

static struct loss *loss_new(const char *user, uint32_t guest_pid)
{
    struct loss *l = xnew0(struct loss);

    l->work = (struct relay_work){.kind = WORK_LOSS, .run = loss_run, .done = loss_done};
    l->status = -1;
    l->guest_pid = guest_pid;
    snprintf(l->user, sizeof(l->user), "%s", user);
    return l;
}

void loss_begin(struct relay_exec *x, const struct err *why)
{
    struct relay *r = x->stream.relay;
    struct loss *l;

    if (x->loss)
        return;
    if (r->sup.gone) {
        loss_ended_with_container(r, x);
        return;
    }
    l = loss_new(x->user, x->stream.guest_pid);
    l->x = x;
    if (why)
        err_copy(&l->why, why);
    if (x->stream.exec_id)
        l->exec_id = xstrdup(x->stream.exec_id);
    x->loss = &l->work;
    work_submit(r, &l->work);
}

void loss_forget(struct relay_exec *x)
{
    if (x->loss)
        container_of(x->loss, struct loss, work)->x = NULL;
    x->loss = NULL;
}

void loss_retry(struct relay *r)
{
    struct orphan *next, *o = r->orphans;

    r->orphans = NULL;
    r->orphans_at = DEADLINE_NEVER;
    for (; o; o = next) {
        next = o->next;
        work_submit(r, &loss_new(o->user, o->guest_pid)->work);
        free(o);
    }
}

/*
 * Calls for the container as a whole: pause, resume, stats, stop. Each is one work.
 */
#include <stdio.h>
#include <string.h>

#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "supervisor/relay/relay.h"

enum { STOP_TRIES = 10 };
#define STOP_RETRY USEC_PER_SEC
#define STOP_TIMEOUT (20 * USEC_PER_SEC)

struct relay_control {
    struct relay_work work;
    struct relay_control *next;
    struct supervisor_peer *peer; /* NULL: no peer waits */
    uint64_t seq;
    bool on;       /* freeze */
    json_t *stats; /* stats: the engine's answer */
    bool gone;     /* stop: the container is gone */
};

static struct relay_control *relay_control_new(struct relay *r, struct supervisor_peer *p,
                                               uint64_t seq, void (*run)(struct relay_work *),
                                               void (*done)(struct relay_work *))
{
    struct relay_control *c = xnew0(struct relay_control);

    c->work = (struct relay_work){.relay = r, .kind = WORK_CONTROL, .run = run, .done = done};
    c->peer = p;
    c->seq = seq;
    c->next = r->controls;
    r->controls = c;
    return c;
}

static void relay_control_free(struct relay_control *c)
{
    struct relay_control **at = &c->work.relay->controls;

    while (*at != c)
        at = &(*at)->next;
    *at = c->next;
    json_decref(c->stats);
    err_done(&c->work.err);
    free(c);
}

void controls_forget(struct relay *r, const struct supervisor_peer *p)
{
    for (struct relay_control *c = r->controls; c; c = c->next)
        if (c->peer == p)
            c->peer = NULL;
}

/* POST /containers/ID/<verb>. A container that is already in that state is not an error. */
static int relay_control_post(const struct relay *r, const char *verb, enum docker_reason fine,
                              const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *base = docker_path("/containers/%s", r->plan.container);
    _cleanup_free_ char *path = xasprintf("%s/%s", base, verb);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int n = docker_call(r->docker, "POST", path, NULL, by, &reply, err);

    if (n < 0 && reply.reason == fine) {
        err_done(err);
        return 0;
    }
    return n;
}

/* ---- pause, resume ---- */

static void relay_control_run_freeze(struct relay_work *w)
{
    struct relay_control *c = container_of(w, struct relay_control, work);
    struct deadline by = deadline_in(RELAY_CALL_TIMEOUT);

    if (c->on)
        relay_control_post(w->relay, "pause", DOCKER_PAUSED, &by, &w->err);
    else
        relay_control_post(w->relay, "unpause", DOCKER_NOT_PAUSED, &by, &w->err);
}

static void relay_control_freeze_done(struct relay_work *w)
{
    struct relay_control *c = container_of(w, struct relay_control, work);
    struct relay *r = w->relay;

    if (!w->err.code && r->sup.state != SUP_STOPPING) {
        r->sup.state = c->on ? SUP_PAUSED : SUP_RUNNING;
        if (!c->on) {
            relay_execs_thawed(r);
            loss_retry(r);
        }
    }
    if (c->peer)
        peer_result(c->peer, c->seq, &w->err);
    relay_control_free(c);
}

int control_freeze(struct supervisor_peer *p, uint64_t seq, bool on, struct err *err _unused_)
{
    struct relay *r = relay_of(p->sup);
    struct relay_control *c =
        relay_control_new(r, p, seq, relay_control_run_freeze, relay_control_freeze_done);

    c->on = on;
    work_submit(r, &c->work);
    return 1;
}

/* Frozen processes do not handle signals. */
void control_thaw(struct supervisor *sup)
{
    struct relay *r = relay_of(sup);

    if (sup->state == SUP_PAUSED)
        work_submit(
            r, &relay_control_new(r, NULL, 0, relay_control_run_freeze, relay_control_freeze_done)
                    ->work);
}

/* ---- stats ---- */

static void relay_control_run_stats(struct relay_work *w)
{
    struct relay_control *c = container_of(w, struct relay_control, work);
    _cleanup_free_ char *path =
        docker_path("/containers/%s/stats?stream=0&one-shot=1", w->relay->plan.container);
    struct deadline by = deadline_in(RELAY_CALL_TIMEOUT);
    struct docker_reply reply = DOCKER_REPLY_INIT;

    docker_call(w->relay->docker, "GET", path, NULL, &by, &reply, &w->err);
    c->stats = reply.json;
}

/* The number at a path such as "memory_stats.usage"; 0 if the engine does not report it. */
static uint64_t relay_control_stat_of(const json_t *doc, const char *a, const char *b,
                                      const char *c)
{
    const json_t *v = json_object_get(json_object_get(doc, a), b);
    json_int_t n = json_integer_value(c ? json_object_get(v, c) : v);

    return n > 0 ? (uint64_t)n : 0;
}

static void relay_control_put_stats(struct sup_writer *w, const struct relay *r, const json_t *doc)
{
    sup_put_stat(w, "memory", relay_control_stat_of(doc, "memory_stats", "usage", NULL));
    sup_put_stat(w, "memory_peak", relay_control_stat_of(doc, "memory_stats", "max_usage", NULL));
    sup_put_stat(w, "memory_limit", r->plan.memory);
    sup_put_stat(w, "cpu_usec",
                 relay_control_stat_of(doc, "cpu_stats", "cpu_usage", "total_usage") / 1000);
    sup_put_stat(w, "pids", relay_control_stat_of(doc, "pids_stats", "current", NULL));
    sup_put_stat(w, "pids_limit", r->plan.pids);
    sup_put_stat(w, "execs", execs_live(&r->sup));
}

static void relay_control_stats_done(struct relay_work *w)
{
    struct relay_control *c = container_of(w, struct relay_control, work);
    struct sup_writer out;

    if (c->peer && w->err.code) {
        peer_result(c->peer, c->seq, &w->err);
    } else if (c->peer) {
        sup_begin(&out, SUP_STATS, c->seq);
        relay_control_put_stats(&out, w->relay, c->stats);
        peer_send(c->peer, &out, -1);
    }
    relay_control_free(c);
}

int control_stats(struct supervisor_peer *p, uint64_t seq, struct err *err _unused_)
{
    struct relay *r = relay_of(p->sup);

    work_submit(
        r, &relay_control_new(r, p, seq, relay_control_run_stats, relay_control_stats_done)->work);
    return 1;
}

/* ---- stop ---- */

/*
 * The commands have had their grace period, so this ends pid 1 and with it all processes. Podman
 * does not stop a paused container. If the engine refuses to stop it, we try to kill it.
 */
static int relay_control_end_container(const struct relay *r, const struct deadline *by,
                                       struct err *err)
{
    _cleanup_err_ struct err first = ERR_INIT;
    struct relay_container container;
    int n = call_inspect(r, by, &container, err);

    if (n < 0 || container.life == LIFE_GONE)
        return n;
    if (container.life == LIFE_PAUSED)
        n = relay_control_post(r, "unpause", DOCKER_NOT_PAUSED, by, err);
    if (n < 0)
        return n;
    if (relay_control_post(r, "stop?t=0", DOCKER_NOT_RUNNING, by, &first) >= 0)
        return 0;
    return relay_control_post(r, "kill", DOCKER_NOT_RUNNING, by, err);
}

static void relay_control_run_stop(struct relay_work *w)
{
    struct relay_control *c = container_of(w, struct relay_control, work);
    struct deadline by = deadline_in(STOP_TIMEOUT);
    struct relay_container container;

    if (relay_control_end_container(w->relay, &by, &w->err) >= 0 &&
        call_inspect(w->relay, &by, &container, &w->err) >= 0)
        c->gone = container.life == LIFE_GONE;
}

/* A container that cannot be stopped is not reported as stopped: its execs are lost, and the daemon
 * finds the container later by itself. */
static void relay_control_give_up(struct relay *r, struct err *err)
{
    if (!err->code)
        err_set(err, ERR_ENGINE, "the engine reported a stop, but the container still runs");
    log_error("sandbox %s: cannot stop it: %s", r->plan.sandbox_id, err->msg);
    relay_execs_lose(r, err);
    relay_gone(r);
}

static void relay_control_stop_done(struct relay_work *w)
{
    struct relay_control *c = container_of(w, struct relay_control, work);
    struct relay *r = w->relay;

    if (c->gone)
        relay_gone(r);
    else if (++r->stop_tries >= STOP_TRIES)
        relay_control_give_up(r, &w->err);
    else if (!r->sup.gone)
        r->stop_at = time_mono() + STOP_RETRY;
    relay_control_free(c);
}

void control_stop(struct supervisor *sup)
{
    struct relay *r = relay_of(sup);

    work_submit(
        r, &relay_control_new(r, NULL, 0, relay_control_run_stop, relay_control_stop_done)->work);
}

void control_retry(struct relay *r)
{
    r->stop_at = DEADLINE_NEVER;
    control_stop(&r->sup);
}

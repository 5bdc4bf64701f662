/*
 * The container's end is the sandbox's end. One thread waits in the engine's `wait` call while the
 * relay lives, and notifies the loop. If the engine disappears, the thread looks for the container
 * again, with growing pauses and for a limited time. If the engine returns with the container still
 * running (live-restore, or Podman, which has no daemon), the sandbox continues unchanged.
 */
#include <poll.h>
#include <pthread.h>

#include "lib/base/cleanup.h"
#include "lib/base/log.h"
#include "lib/base/xalloc.h"
#include "supervisor/relay/relay.h"

enum { PAUSE_FIRST_MS = 100, PAUSE_MAX_MS = 5000 };
#define GIVE_UP_AFTER (300 * USEC_PER_SEC)

enum news { NEWS_LOST, NEWS_BACK, NEWS_GONE, NEWS_GIVEN_UP };

struct notice {
    struct relay_work work;
    enum news news;
    bool oom; /* with NEWS_GONE: as in struct relay_container */
};

struct relay_watcher {
    struct relay *relay;
    bool lost;
    uint64_t lost_at;
    int pause_ms;
};

/* ---- on the loop ---- */

static void watch_on_notice(struct relay_work *w)
{
    struct notice *n = container_of(w, struct notice, work);
    struct relay *r = w->relay;
    const char *why = w->err.msg ? w->err.msg : "";

    switch (n->news) {
    case NEWS_LOST:
        log_warn("sandbox %s: the engine does not answer, retrying: %s", r->plan.sandbox_id, why);
        break;
    case NEWS_BACK:
        log_info("sandbox %s: the engine answers again and the container runs", r->plan.sandbox_id);
        loss_retry(r);
        break;
    case NEWS_GIVEN_UP:
        log_error("sandbox %s: the engine has not answered for too long: %s", r->plan.sandbox_id,
                  why);
        relay_execs_lose(r, &w->err);
        relay_gone(r);
        break;
    case NEWS_GONE:
        r->oom |= n->oom;
        relay_gone(r);
        break;
    }
    err_done(&w->err);
    free(n);
}

/* ---- on the thread ---- */

static void watch_notify(struct relay_watcher *w, enum news news, bool oom, struct err *err)
{
    struct notice *n = xnew0(struct notice);

    n->work = (struct relay_work){.relay = w->relay, .done = watch_on_notice};
    n->news = news;
    n->oom = oom;
    if (err)
        err_copy(&n->work.err, err);
    work_post(&n->work);
}

static void watch_rest(struct relay_watcher *w)
{
    poll(NULL, 0, w->pause_ms);
    w->pause_ms = MIN(w->pause_ms * 2, PAUSE_MAX_MS);
}

/* Waits until the container has ended or does not exist: 0. An error means that the engine closed
 * the connection, which does not mean that the container ended. */
static int watch_wait_for_end(const struct relay_watcher *w, struct err *err)
{
    _cleanup_free_ char *path =
        docker_path("/containers/%s/wait?condition=not-running", w->relay->plan.container);
    _cleanup_(docker_stream_closep) struct docker_stream *s = NULL;
    struct deadline by = deadline_in(RELAY_CALL_TIMEOUT), never = {DEADLINE_NEVER};
    json_t *line = NULL;
    int r;

    r = docker_stream_open(w->relay->docker, "POST", path, NULL, -1, &by, &s, NULL, err);
    if (r == 0)
        r = docker_stream_next(s, &never, &line, err);
    json_decref(line);
    return r < 0 && r != -ERR_NOT_FOUND ? -1 : 0;
}

/* The engine does not answer. False: for too long, give up. */
static bool watch_still_hopes(struct relay_watcher *w, struct err *err)
{
    if (!w->lost) {
        w->lost_at = time_mono();
        watch_notify(w, NEWS_LOST, false, err);
    }
    w->lost = true;
    if (time_mono() - w->lost_at < GIVE_UP_AFTER)
        return true;
    watch_notify(w, NEWS_GIVEN_UP, false, err);
    return false;
}

/* A broken wait means a lost engine, even if the engine is back before we can ask. An engine that
 * reports `running` and refuses to wait must not be asked in a tight loop. */
static bool watch_sit(struct relay_watcher *w)
{
    _cleanup_err_ struct err err = ERR_INIT;
    uint64_t begun = time_mono();
    bool hopes = watch_wait_for_end(w, &err) == 0 || watch_still_hopes(w, &err);

    if (time_mono() - begun > PAUSE_MAX_MS * USEC_PER_MSEC)
        w->pause_ms = PAUSE_FIRST_MS;
    else
        watch_rest(w);
    return hopes;
}

/* Inspects the container before each wait, because it may have ended already. False: it has
 * ended. */
static bool watch_check(struct relay_watcher *w)
{
    struct deadline by = deadline_in(RELAY_CALL_TIMEOUT);
    _cleanup_err_ struct err err = ERR_INIT;
    struct relay_container container;

    if (call_inspect(w->relay, &by, &container, &err) < 0) {
        watch_rest(w);
        return watch_still_hopes(w, &err);
    }
    if (container.life == LIFE_GONE) {
        watch_notify(w, NEWS_GONE, container.oom, NULL);
        return false;
    }
    if (w->lost)
        watch_notify(w, NEWS_BACK, false, NULL);
    w->lost = false;
    return watch_sit(w);
}

static void *watch_thread_main(void *arg)
{
    struct relay_watcher *w = arg;

    while (watch_check(w))
        ;
    free(w);
    return NULL;
}

int watch_start(struct relay *r, struct err *err)
{
    _cleanup_free_ struct relay_watcher *w = xnew0(struct relay_watcher);
    pthread_attr_t attr;
    pthread_t thread;
    int e;

    *w = (struct relay_watcher){.relay = r, .pause_ms = PAUSE_FIRST_MS};
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    e = pthread_create(&thread, &attr, watch_thread_main, w);
    pthread_attr_destroy(&attr);
    if (e)
        return err_sys(err, e, "start the watching thread");
    TAKE_PTR(w);
    return 0;
}

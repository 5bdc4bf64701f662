/*
 * A thread that reads the engine's event stream. An event about one of our containers makes core
 * check that sandbox. The removal of a volume or network drops it from the cache of ensure.h. When
 * the stream breaks, the thread reconnects with growing pauses. After that, core checks everything,
 * because events in between are lost.
 */
#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "daemon/engine/docker/backend.h"
#include "dockerapi/events.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/thread.h"
#include "lib/base/xalloc.h"

#define PAUSE_FIRST (100 * USEC_PER_MSEC)
#define PAUSE_MAX (5 * USEC_PER_SEC)

struct docker_watcher {
    struct docker_engine *d;
    pthread_t thread;
    bool running;
    int stop_fd; /* an eventfd: readable when the thread must end */
};

/* Waits. False: the thread must end. */
static bool docker_events_pause(const struct docker_watcher *w, uint64_t usec)
{
    struct pollfd p = {.fd = w->stop_fd, .events = POLLIN};
    int r;

    do
        r = poll(&p, 1, (int)(usec / USEC_PER_MSEC));
    while (r < 0 && errno == EINTR);
    return r == 0;
}

static void docker_events_on_container(struct docker_engine *d, const struct docker_event *ev)
{
    const char *root = docker_event_label(ev, LABEL_ROOT), *id = docker_event_label(ev, LABEL_ID);
    struct engine_news news = {.kind = ENGINE_NEWS_SANDBOX};

    if (!root || !id || !STREQ(root, d->root_id))
        return;
    switch ((int)ev->action) {
    case DOCKER_EVENT_DIE:
    case DOCKER_EVENT_PAUSE:
    case DOCKER_EVENT_UNPAUSE:
    case DOCKER_EVENT_DESTROY:
        snprintf(news.id, sizeof(news.id), "%s", id);
        engine_send_news(&d->engine, &news);
        break;
    default:
        break;
    }
}

static void docker_events_on_event(struct docker_engine *d, const struct docker_event *ev)
{
    if (ev->type == DOCKER_EVENT_CONTAINER)
        docker_events_on_container(d, ev);
    else if (ev->action == DOCKER_EVENT_DESTROY && ev->type == DOCKER_EVENT_VOLUME)
        ensured_forget(&d->ensured, "volume", *ev->name ? ev->name : ev->id);
    else if (ev->action == DOCKER_EVENT_DESTROY && ev->type == DOCKER_EVENT_NETWORK)
        ensured_forget(&d->ensured, "network", ev->name);
}

/* Reads until the stream ends. True: the thread must end. */
static bool docker_events_follow(struct docker_watcher *w, struct docker_events *events)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct docker_event ev;
    int r;

    while ((r = docker_events_next(events, &ev, &err)) > 0) {
        docker_events_on_event(w->d, &ev);
        docker_event_done(&ev);
    }
    if (r < 0)
        log_debug("engine docker: event stream ended: %s", err.msg);
    return r == 0 && !docker_events_pause(w, 0);
}

/* Connects (again) and opens the stream. */
static int docker_events_begin(struct docker_watcher *w, bool again, struct docker_events **ret,
                               struct err *err)
{
    const struct engine_news back = {.kind = ENGINE_NEWS_BACK};
    _cleanup_json_ json_t *filters =
        json_pack("{s:[s,s,s]}", "type", "container", "volume", "network");
    struct deadline by = deadline_in(w->d->timeout);
    int r = again ? docker_reconnect(w->d, &by, err) : 0;

    if (r < 0)
        return r;
    by = deadline_in(w->d->timeout);
    r = docker_events_open(docker_client(w->d), filters, w->stop_fd, &by, ret, err);
    if (r < 0)
        return r;
    /* Core reads the state after the stream is open, so no change is missed. */
    engine_send_news(&w->d->engine, &back);
    return 0;
}

static void *docker_events_watcher_main(void *arg)
{
    struct docker_watcher *w = arg;
    uint64_t pause = PAUSE_FIRST;
    bool again = false;

    for (;;) {
        _cleanup_(docker_events_closep) struct docker_events *events = NULL;
        _cleanup_err_ struct err err = ERR_INIT;

        if (docker_events_begin(w, again, &events, &err) >= 0) {
            pause = PAUSE_FIRST;
            if (docker_events_follow(w, events))
                return NULL;
        } else {
            log_debug("engine docker: cannot open the event stream: %s", err.msg);
        }
        again = true;
        if (!docker_events_pause(w, pause))
            return NULL;
        pause = MIN(pause * 2, PAUSE_MAX);
    }
}

struct docker_watcher *watcher_new(struct docker_engine *d)
{
    struct docker_watcher *w = xnew0(struct docker_watcher);

    w->d = d;
    w->stop_fd = eventfd(0, EFD_CLOEXEC);
    w->running = w->stop_fd >= 0 && thread_start(&w->thread, docker_events_watcher_main, w) == 0;
    if (!w->running)
        log_warn("engine docker: cannot start the event thread; changes by other programs are "
                 "noticed late");
    return w;
}

void watcher_free(struct docker_watcher *w)
{
    uint64_t one = 1;

    if (!w)
        return;
    if (w->running && write(w->stop_fd, &one, sizeof(one)) == sizeof(one))
        pthread_join(w->thread, NULL);
    fd_close(w->stop_fd);
    free(w);
}

/*
 * Thin wrappers of libuv handles. Each wrapper is a separate allocation that is freed in its close
 * callback, so a caller may free it anywhere, even in its own callback.
 */
#include "lib/loop/loop.h"

#include <assert.h>
#include <stdlib.h>
#include <uv.h>

#include "lib/base/log.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

struct deferred {
    struct deferred *next;
    loop_fn fn;
    void *arg;
};

struct loop {
    uv_loop_t uv;
    uv_async_t keep; /* keeps uv_run() waiting when nothing else is registered */
    uv_idle_t idle;  /* active while something is deferred: libuv then does not sleep in poll */
    struct deferred *first, **last;
    bool stopping;
};

struct loop_timer {
    uv_timer_t uv;
    loop_fn fn;
    void *arg;
};

struct loop_watch {
    uv_poll_t uv;
    int events; /* of libuv, that it watches for */
    loop_watch_fn fn;
    void *arg;
};

struct loop_signal {
    uv_signal_t uv;
    loop_signal_fn fn;
    void *arg;
};

static void loop_free_closed(uv_handle_t *h)
{
    free(h->data);
}

/* Runs only functions that were deferred before this turn: one that defers itself again must not
 * starve the loop. */
static void loop_run_deferred(uv_idle_t *idle)
{
    struct loop *l = idle->data;
    struct deferred *d = l->first;

    l->first = NULL;
    l->last = &l->first;
    while (d) {
        struct deferred *next = d->next;

        d->fn(d->arg);
        free(d);
        d = next;
    }
    if (!l->first)
        uv_idle_stop(idle);
}

static void loop_on_keep(uv_async_t *keep _unused_)
{
}

int loop_new(struct loop **ret, struct err *err)
{
    struct loop *l = xnew0(struct loop);
    int r;

    /* Out of memory, libuv calls abort() or returns unexpected errors; xalloc ends the process. */
    uv_replace_allocator(xmalloc, xrealloc, xcalloc, free);
    r = uv_loop_init(&l->uv);
    if (r < 0) {
        free(l);
        return err_sys(err, -r, "start the event loop");
    }
    r = uv_async_init(&l->uv, &l->keep, loop_on_keep);
    if (r < 0) {
        uv_loop_close(&l->uv);
        free(l);
        return err_sys(err, -r, "start the event loop");
    }
    uv_idle_init(&l->uv, &l->idle);
    l->idle.data = l;
    l->last = &l->first;
    *ret = l;
    return 0;
}

void loop_free(struct loop *l)
{
    int r;

    if (!l)
        return;
    /* Closing handles, and functions that they defer, need more turns of the loop. */
    do
        uv_run(&l->uv, UV_RUN_NOWAIT);
    while (l->first);
    uv_close((uv_handle_t *)&l->keep, NULL);
    uv_close((uv_handle_t *)&l->idle, NULL);
    uv_run(&l->uv, UV_RUN_NOWAIT);
    r = uv_loop_close(&l->uv);
    assert(r == 0);
    if (r < 0) {
        log_debug("event loop: handles left open at its end");
        return;
    }
    free(l);
}

struct uv_loop_s *loop_uv(struct loop *l)
{
    return &l->uv;
}

void loop_run(struct loop *l)
{
    while (!l->stopping)
        uv_run(&l->uv, UV_RUN_DEFAULT);
    l->stopping = false;
}

void loop_stop(struct loop *l)
{
    l->stopping = true;
    uv_stop(&l->uv);
}

void loop_defer(struct loop *l, loop_fn fn, void *arg)
{
    struct deferred *d = xmalloc(sizeof(*d));

    *d = (struct deferred){.fn = fn, .arg = arg};
    *l->last = d;
    l->last = &d->next;
    uv_idle_start(&l->idle, loop_run_deferred);
}

static void loop_on_timer(uv_timer_t *h)
{
    struct loop_timer *t = h->data;

    t->fn(t->arg);
}

struct loop_timer *loop_timer_new(struct loop *l, loop_fn fn, void *arg)
{
    struct loop_timer *t = xnew0(struct loop_timer);

    uv_timer_init(&l->uv, &t->uv);
    t->uv.data = t;
    t->fn = fn;
    t->arg = arg;
    return t;
}

/*
 * libuv counts whole milliseconds of a truncated clock, so a timer of n ms may fire up to 1 ms
 * early. The extra millisecond guarantees that a deadline has passed when its timer fires.
 */
void loop_timer_set(struct loop_timer *t, uint64_t usec, bool repeat)
{
    uint64_t ms = usec ? usec / USEC_PER_MSEC + 1 : 0;

    uv_update_time(t->uv.loop);
    uv_timer_start(&t->uv, loop_on_timer, ms, repeat ? (ms ? ms : 1) : 0);
}

void loop_timer_stop(struct loop_timer *t)
{
    uv_timer_stop(&t->uv);
}

void loop_timer_free(struct loop_timer *t)
{
    if (t)
        uv_close((uv_handle_t *)&t->uv, loop_free_closed);
}

/*
 * On POLLERR libuv reports a status and stops watching. We report both directions as ready, and the
 * next read or write of the owner returns the error.
 */
static void loop_on_watch(uv_poll_t *h, int status, int events)
{
    struct loop_watch *w = h->data;
    int what = 0;

    if (status < 0) {
        w->events = 0;
        what = LOOP_READ | LOOP_WRITE;
    }
    if (events & UV_READABLE)
        what |= LOOP_READ;
    if (events & UV_WRITABLE)
        what |= LOOP_WRITE;
    w->fn(w->arg, what);
}

struct loop_watch *loop_watch_new(struct loop *l, int fd, loop_watch_fn fn, void *arg)
{
    struct loop_watch *w = xnew0(struct loop_watch);

    if (uv_poll_init(&l->uv, &w->uv, fd) < 0) {
        free(w);
        return NULL;
    }
    w->uv.data = w;
    w->fn = fn;
    w->arg = arg;
    return w;
}

void loop_watch_set(struct loop_watch *w, int events)
{
    int uv = (events & LOOP_READ ? UV_READABLE : 0) | (events & LOOP_WRITE ? UV_WRITABLE : 0);

    if (uv == w->events)
        return; /* libuv would make two system calls */
    w->events = uv;
    if (uv)
        uv_poll_start(&w->uv, uv, loop_on_watch);
    else
        uv_poll_stop(&w->uv);
}

void loop_watch_free(struct loop_watch *w)
{
    if (w)
        uv_close((uv_handle_t *)&w->uv, loop_free_closed);
}

static void loop_on_signal(uv_signal_t *h, int sig)
{
    struct loop_signal *s = h->data;

    s->fn(s->arg, sig);
}

struct loop_signal *loop_signal_new(struct loop *l, int sig, loop_signal_fn fn, void *arg)
{
    struct loop_signal *s = xnew0(struct loop_signal);

    if (uv_signal_init(&l->uv, &s->uv) < 0) {
        free(s);
        return NULL;
    }
    s->uv.data = s;
    s->fn = fn;
    s->arg = arg;
    if (uv_signal_start(&s->uv, loop_on_signal, sig) < 0) {
        loop_signal_free(s);
        return NULL;
    }
    return s;
}

void loop_signal_free(struct loop_signal *s)
{
    if (s)
        uv_close((uv_handle_t *)&s->uv, loop_free_closed);
}

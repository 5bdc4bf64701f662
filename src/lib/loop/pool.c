/*
 * One mutex protects everything that workers and the loop share. A worker takes the oldest job,
 * runs it without the mutex, puts it on the finished list and wakes the loop through a uv_async.
 * The loop runs done() and joins workers that have ended. Workers are joined, not detached, so none
 * can hold the mutex when the pool is freed.
 */
#include "lib/loop/pool.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <uv.h>

#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

enum { IDLE_SECONDS = 5, STACK_SIZE = 1 << 20 };

struct pool_job {
    struct pool_job *next;
    pool_fn work, done;
    void *arg;
};

struct job_list {
    struct pool_job *first, **last;
};

enum worker_state { WORKER_NONE, WORKER_RUNNING, WORKER_ENDED };

struct worker {
    struct pool *pool;
    pthread_t thread;
    enum worker_state state;
};

struct pool {
    uv_async_t async;
    char *name;
    unsigned threads_max, queue_max;

    pthread_mutex_t lock; /* over all below */
    pthread_cond_t wake;
    struct job_list queue, finished;
    unsigned queued, idle, running;
    bool stopping;
    struct worker workers[];
};

static void pool_job_push(struct job_list *list, struct pool_job *j)
{
    j->next = NULL;
    *list->last = j;
    list->last = &j->next;
}

static struct pool_job *pool_job_pop(struct job_list *list)
{
    struct pool_job *j = list->first;

    if (!j)
        return NULL;
    list->first = j->next;
    if (!list->first)
        list->last = &list->first;
    return j;
}

/* The next job, or NULL when the worker should end. The lock is held on entry and on return. */
static struct pool_job *pool_next_job(struct pool *p)
{
    struct timespec until;
    int r = 0;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_sec += IDLE_SECONDS;
    p->idle++;
    while (!p->queue.first && !p->stopping && r != ETIMEDOUT)
        r = pthread_cond_timedwait(&p->wake, &p->lock, &until);
    p->idle--;
    if (p->queue.first)
        p->queued--;
    return pool_job_pop(&p->queue);
}

static void *pool_worker_main(void *arg)
{
    struct worker *w = arg;
    struct pool *p = w->pool;
    struct pool_job *j;

    pthread_mutex_lock(&p->lock);
    while ((j = pool_next_job(p))) {
        pthread_mutex_unlock(&p->lock);
        j->work(j->arg);
        pthread_mutex_lock(&p->lock);
        pool_job_push(&p->finished, j);
        uv_async_send(&p->async);
    }
    w->state = WORKER_ENDED;
    p->running--;
    uv_async_send(&p->async);
    pthread_mutex_unlock(&p->lock);
    return NULL;
}

/* Called with the lock held. An ended worker only has to release the lock. */
static void pool_join_ended(struct pool *p)
{
    for (unsigned i = 0; i < p->threads_max; i++) {
        struct worker *w = &p->workers[i];

        if (w->state != WORKER_ENDED)
            continue;
        w->state = WORKER_NONE;
        pthread_mutex_unlock(&p->lock);
        pthread_join(w->thread, NULL);
        pthread_mutex_lock(&p->lock);
    }
}

static void pool_run_finished(struct pool *p)
{
    struct pool_job *j;

    pthread_mutex_lock(&p->lock);
    while ((j = pool_job_pop(&p->finished))) {
        pthread_mutex_unlock(&p->lock);
        j->done(j->arg);
        free(j);
        pthread_mutex_lock(&p->lock);
    }
    pthread_mutex_unlock(&p->lock);
}

static void pool_on_async(uv_async_t *async)
{
    struct pool *p = async->data;

    pthread_mutex_lock(&p->lock);
    pool_join_ended(p);
    pthread_mutex_unlock(&p->lock);
    pool_run_finished(p);
}

struct pool *pool_new(struct loop *l, const char *name, unsigned threads, unsigned queue_max)
{
    struct pool *p = xcalloc(1, sizeof(*p) + threads * sizeof(p->workers[0]));
    pthread_condattr_t attr;

    p->name = xstrndup(name, 15); /* the limit of the kernel for thread names */
    p->threads_max = threads;
    p->queue_max = queue_max;
    p->queue.last = &p->queue.first;
    p->finished.last = &p->finished.first;
    pthread_mutex_init(&p->lock, NULL);
    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(&p->wake, &attr);
    pthread_condattr_destroy(&attr);
    uv_async_init(loop_uv(l), &p->async, pool_on_async);
    p->async.data = p;
    return p;
}

/* Only the thread of the loop handles signals: a worker starts with all signals blocked. */
static int pool_worker_start(struct pool *p, struct worker *w)
{
    pthread_attr_t attr;
    sigset_t all, old;
    int r;

    w->pool = p;
    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setstacksize(&attr, STACK_SIZE);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&w->thread, &attr, pool_worker_main, w);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    if (r != 0)
        return -r;
    pthread_setname_np(w->thread, p->name);
    w->state = WORKER_RUNNING;
    p->running++;
    return 0;
}

/* With the lock held: one more worker when the idle ones cannot take what is queued. 0 or
 * -errno. */
static int pool_add_worker(struct pool *p)
{
    if (p->queued < p->idle || p->running == p->threads_max)
        return 0;
    pool_join_ended(p);
    for (unsigned i = 0; i < p->threads_max; i++)
        if (p->workers[i].state == WORKER_NONE)
            return pool_worker_start(p, &p->workers[i]);
    return 0;
}

int pool_submit(struct pool *p, pool_fn work, pool_fn done, void *arg, struct err *err)
{
    struct pool_job *j;
    int r;

    pthread_mutex_lock(&p->lock);
    if (p->stopping || p->queued >= p->queue_max) {
        bool stopping = p->stopping;

        pthread_mutex_unlock(&p->lock);
        err_set(err, ERR_LIMIT,
                stopping ? "work queue '%s' is shutting down" : "work queue '%s' is full", p->name);
        return err_hint(err, "Try again when running operations have ended.");
    }
    r = pool_add_worker(p);
    if (r < 0 && p->running == 0) {
        pthread_mutex_unlock(&p->lock);
        return err_sys(err, -r, "start a worker thread of '%s'", p->name);
    }
    j = xmalloc(sizeof(*j));
    *j = (struct pool_job){.work = work, .done = done, .arg = arg};
    pool_job_push(&p->queue, j);
    p->queued++;
    pthread_cond_signal(&p->wake);
    pthread_mutex_unlock(&p->lock);
    return 0;
}

static void pool_on_closed(uv_handle_t *h)
{
    struct pool *p = h->data;

    pthread_cond_destroy(&p->wake);
    pthread_mutex_destroy(&p->lock);
    free(p->name);
    free(p);
}

void pool_free(struct pool *p)
{
    if (!p)
        return;
    pthread_mutex_lock(&p->lock);
    p->stopping = true;
    pthread_cond_broadcast(&p->wake);
    for (unsigned i = 0; i < p->threads_max; i++) {
        struct worker *w = &p->workers[i];

        if (w->state == WORKER_NONE)
            continue;
        pthread_mutex_unlock(&p->lock);
        pthread_join(w->thread, NULL);
        pthread_mutex_lock(&p->lock);
        w->state = WORKER_NONE;
    }
    pthread_mutex_unlock(&p->lock);
    pool_run_finished(p);
    uv_close((uv_handle_t *)&p->async, pool_on_closed);
}

#include "daemon/engine/native/cgroup-reaper.h"

#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "daemon/engine/native/cgroups.h"
#include "lib/base/log.h"
#include "lib/base/macro.h"
#include "lib/base/strv.h"
#include "lib/base/thread.h"
#include "lib/base/xalloc.h"
#include "lib/os/cgroup.h"

/* A batch ends when nothing was added for QUIET_MSEC, and after WAIT_MAX_MSEC in any case. */
enum { QUIET_MSEC = 50, WAIT_MAX_MSEC = 5000 };

struct reaper_item {
    struct reaper_item *next;
    char id[CGROUP_NAME_MAX];
};

struct cgroup_reaper {
    const struct native_cgroups *cgroups;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    pthread_t thread;
    bool threaded, closing;
    struct reaper_item *waiting, *now; /* the queue, and the item that is being removed */
    int64_t first_at, last_at;         /* when the queue got its first and its last item */
};

/* Milliseconds of the clock that the condition variable uses. */
static int64_t cgroup_reaper_now_msec(void)
{
    struct timespec t;

    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static void cgroup_reaper_remove(const struct cgroup_reaper *b, const char *id)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (native_cgroups_sweep(b->cgroups, id, &err) < 0)
        log_warn("sandbox %s: %s; the next reconcile tries again", id, err.msg);
}

/* With the lock held, which is released during each removal. One at a time, so that the others can
 * still be reclaimed. */
static void cgroup_reaper_remove_all(struct cgroup_reaper *b)
{
    while ((b->now = b->waiting)) {
        b->waiting = b->now->next;
        pthread_mutex_unlock(&b->lock);
        cgroup_reaper_remove(b, b->now->id);
        pthread_mutex_lock(&b->lock);
        free(TAKE_PTR(b->now));
        pthread_cond_broadcast(&b->changed);
    }
}

static void *cgroup_reaper_main(void *arg)
{
    struct cgroup_reaper *b = arg;

    pthread_mutex_lock(&b->lock);
    while (!b->closing) {
        int64_t due = MIN(b->last_at + QUIET_MSEC, b->first_at + WAIT_MAX_MSEC);
        struct timespec at = {.tv_sec = due / 1000, .tv_nsec = due % 1000 * 1000000};

        if (!b->waiting)
            pthread_cond_wait(&b->changed, &b->lock);
        else if (cgroup_reaper_now_msec() < due)
            pthread_cond_timedwait(&b->changed, &b->lock, &at);
        else
            cgroup_reaper_remove_all(b);
    }
    cgroup_reaper_remove_all(b);
    pthread_mutex_unlock(&b->lock);
    return NULL;
}

struct cgroup_reaper *cgroup_reaper_new(const struct native_cgroups *cgroups)
{
    struct cgroup_reaper *b = xnew0(struct cgroup_reaper);
    pthread_condattr_t clock;

    b->cgroups = cgroups;
    pthread_mutex_init(&b->lock, NULL);
    pthread_condattr_init(&clock);
    pthread_condattr_setclock(&clock, CLOCK_MONOTONIC);
    pthread_cond_init(&b->changed, &clock);
    pthread_condattr_destroy(&clock);
    return b;
}

void cgroup_reaper_free(struct cgroup_reaper *b)
{
    if (!b)
        return;
    pthread_mutex_lock(&b->lock);
    b->closing = true;
    pthread_cond_broadcast(&b->changed);
    pthread_mutex_unlock(&b->lock);
    if (b->threaded)
        pthread_join(b->thread, NULL);
    pthread_cond_destroy(&b->changed);
    pthread_mutex_destroy(&b->lock);
    free(b);
}

/* With the lock held. */
static void cgroup_reaper_push(struct cgroup_reaper *b, const char *id)
{
    struct reaper_item *r = xnew0(struct reaper_item);

    snprintf(r->id, sizeof(r->id), "%s", id);
    b->last_at = cgroup_reaper_now_msec();
    if (!b->waiting) {
        b->first_at = b->last_at;
        pthread_cond_broadcast(&b->changed);
    }
    r->next = b->waiting;
    b->waiting = r;
}

void cgroup_reaper_add(struct cgroup_reaper *b, const char *id)
{
    bool taken;

    pthread_mutex_lock(&b->lock);
    b->threaded = b->threaded || thread_start(&b->thread, cgroup_reaper_main, b) == 0;
    taken = b->threaded;
    if (taken)
        cgroup_reaper_push(b, id);
    pthread_mutex_unlock(&b->lock);
    if (!taken)
        cgroup_reaper_remove(b, id);
}

void cgroup_reaper_reclaim(struct cgroup_reaper *b, const char *id)
{
    pthread_mutex_lock(&b->lock);
    for (struct reaper_item **at = &b->waiting; *at; at = &(*at)->next)
        if (STREQ((*at)->id, id)) {
            struct reaper_item *r = *at;

            *at = r->next;
            free(r);
            break;
        }
    while (b->now && STREQ(b->now->id, id))
        pthread_cond_wait(&b->changed, &b->lock);
    pthread_mutex_unlock(&b->lock);
}

void cgroup_reaper_list(struct cgroup_reaper *b, char ***ids)
{
    pthread_mutex_lock(&b->lock);
    for (const struct reaper_item *r = b->waiting; r; r = r->next)
        strv_add(ids, r->id);
    if (b->now)
        strv_add(ids, b->now->id);
    pthread_mutex_unlock(&b->lock);
}

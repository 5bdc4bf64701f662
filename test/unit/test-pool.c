#include "tap.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/loop/loop.h"
#include "lib/loop/pool.h"

DEFINE_CLEANUP(struct loop *, loop_free);
#define _cleanup_loop_ _cleanup_(loop_freep)

struct load {
    struct loop *loop;
    struct pool *pool;
    pthread_t loop_thread;
    atomic_int worked, at_once, at_once_max;
    int done, stop_at, wrong_thread;
    unsigned sleep_usec;
    atomic_bool held; /* no task ends */
};

static void work(void *arg)
{
    struct load *t = arg;
    int now = atomic_fetch_add(&t->at_once, 1) + 1, max = atomic_load(&t->at_once_max);

    while (now > max && !atomic_compare_exchange_weak(&t->at_once_max, &max, now))
        ;
    if (t->sleep_usec)
        usleep(t->sleep_usec);
    while (t->held)
        usleep(1000);
    atomic_fetch_sub(&t->at_once, 1);
    atomic_fetch_add(&t->worked, 1);
}

static void done(void *arg)
{
    struct load *t = arg;

    t->wrong_thread += !pthread_equal(pthread_self(), t->loop_thread);
    if (++t->done == t->stop_at)
        loop_stop(t->loop);
}

static void load_init(struct load *t, struct loop *l, unsigned threads, unsigned queue_max)
{
    *t = (struct load){
        .loop = l, .pool = pool_new(l, "test", threads, queue_max), .loop_thread = pthread_self()};
}

TEST(runs_all_on_at_most_n_threads)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct load t;

    CHECK(loop_new(&l, NULL) == 0);
    load_init(&t, l, 4, 1000);
    t.stop_at = 500;
    t.sleep_usec = 100;
    for (int i = 0; i < 500; i++)
        CHECK(pool_submit(t.pool, work, done, &t, NULL) == 0);
    loop_run(l);
    pool_free(t.pool);
    CHECK(t.worked == 500 && t.done == 500 && t.wrong_thread == 0);
    CHECK(t.at_once_max <= 4 && t.at_once_max >= 2);
}

TEST(queue_is_bounded)
{
    _cleanup_loop_ struct loop *l = NULL;
    _cleanup_err_ struct err err = ERR_INIT;
    struct load t;
    int taken = 0;

    CHECK(loop_new(&l, NULL) == 0);
    load_init(&t, l, 1, 3);
    t.held = true;
    while (taken < 100 && pool_submit(t.pool, work, done, &t, &err) == 0)
        taken++;
    t.held = false;
    CHECK(taken >= 3 && taken <= 4);
    CHECK(err.code == ERR_LIMIT && strstr(err.msg, "test") && err.hint);
    pool_free(t.pool);
    CHECK(t.worked == taken && t.done == taken);
}

TEST(free_of_an_unused_pool)
{
    _cleanup_loop_ struct loop *l = NULL;

    CHECK(loop_new(&l, NULL) == 0);
    pool_free(pool_new(l, "unused", 2, 2));
    pool_free(NULL);
}

static void submit_from_done(void *arg)
{
    struct load *t = arg;

    t->done++;
    if (t->done < t->stop_at && pool_submit(t->pool, work, submit_from_done, t, NULL) < 0)
        t->wrong_thread++;
    if (t->done == t->stop_at)
        loop_stop(t->loop);
}

TEST(done_may_submit_more)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct load t;

    CHECK(loop_new(&l, NULL) == 0);
    load_init(&t, l, 2, 10);
    t.stop_at = 200;
    CHECK(pool_submit(t.pool, work, submit_from_done, &t, NULL) == 0);
    loop_run(l);
    t.stop_at = -1;
    pool_free(t.pool);
    CHECK(t.done == 200 && t.worked == 200 && t.wrong_thread == 0);
}

TEST(submit_while_stopping_is_refused)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct load t;

    CHECK(loop_new(&l, NULL) == 0);
    load_init(&t, l, 1, 10);
    t.stop_at = 5;
    CHECK(pool_submit(t.pool, work, submit_from_done, &t, NULL) == 0);
    pool_free(t.pool);
    CHECK(t.done == 1 && t.wrong_thread == 1);
}

static int thread_count(void)
{
    char line[256];
    int n = -1;
    FILE *f = fopen("/proc/self/status", "re");

    while (f && fgets(line, sizeof(line), f))
        if (sscanf(line, "Threads: %d", &n) == 1)
            break;
    if (f)
        fclose(f);
    return n;
}

static void stop(void *arg)
{
    struct load *t = arg;

    loop_stop(t->loop);
}

TEST(idle_threads_end)
{
    _cleanup_loop_ struct loop *l = NULL;
    struct load t;
    struct loop_timer *timer;
    int before = thread_count();

    CHECK(loop_new(&l, NULL) == 0);
    load_init(&t, l, 2, 10);
    t.stop_at = 2;
    t.sleep_usec = 1000;
    CHECK(pool_submit(t.pool, work, done, &t, NULL) == 0);
    CHECK(pool_submit(t.pool, work, done, &t, NULL) == 0);
    loop_run(l);
    CHECK(thread_count() > before);
    timer = loop_timer_new(l, stop, &t);
    loop_timer_set(timer, 100 * USEC_PER_MSEC, true);
    for (int i = 0; i < 600 && thread_count() > before; i++)
        loop_run(l);
    loop_timer_free(timer);
    CHECK(thread_count() == before);
    CHECK(pool_submit(t.pool, work, done, &t, NULL) == 0); /* and start again */
    pool_free(t.pool);
    CHECK(t.done == 3);
}

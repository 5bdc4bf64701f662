/*
 * What stands before every backend: whether it is open, who opens it, and the news that its own
 * threads have for the loop. For engine.c and opener.c; the public face is in engine.h.
 *
 * A backend is opened by whichever worker needs it first, and by one at a time: those who come
 * meanwhile wait for that try and share its result, so that a dead backend costs one wait, not one
 * for each caller in turn.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "daemon/engine/engine.h"

struct news_item;

struct engine_opener {
    struct loop *loop;
    struct pool *pool, *builds;

    pthread_mutex_t lock; /* over the next ones */
    pthread_cond_t changed;
    bool opened, opening;
    unsigned tries;
    struct err failure; /* of the last try */
    struct news_item *first, **last;

    /* Of the loop alone. */
    bool open;
    struct err trouble;
    int news_fd;
    struct loop_watch *watch;
    engine_news_fn listener;
    void *listener_arg;
};

struct engine_opener *opener_new(struct engine *e, struct loop *loop, struct pool *pool);
void opener_free(struct engine_opener *f);

/* On a worker: the backend is open when this returns 0. */
int opener_open(struct engine *e, const struct deadline *by, struct err *err);
/* On the loop, after a call that needed the backend. failure NULL: it was open. */
void opener_settle(struct engine *e, const struct err *failure);

/*
 * Opens a backend on first use, and carries the news of its threads to the loop. Only for engine.c,
 * build.c and opener.c; the public part is in engine.h.
 *
 * The first worker that needs a backend opens it, one at a time: others wait for that attempt and
 * share its result, so that a dead backend costs one wait, not one for each caller in turn.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "daemon/engine/engine.h"

struct news_item;

struct engine_opener {
    struct loop *loop;
    struct pool *pool, *builds;

    pthread_mutex_t lock; /* protects the members up to the next comment */
    pthread_cond_t changed;
    bool opened, opening;
    unsigned tries;
    struct err failure; /* of the last attempt */
    struct news_item *first, **last;

    /* Only for the loop. */
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
/* On the loop, after a call that needed the backend. failure NULL: the backend was open. */
void opener_settle(struct engine *e, const struct err *failure);

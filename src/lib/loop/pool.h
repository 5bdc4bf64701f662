/*
 * A small pool of worker threads for straight-line blocking work. work() runs on a worker and sees
 * only its own argument; done() runs on the loop after it. Threads start on demand, up to
 * `threads`, and end after being idle for a while (an idle daemon has one thread). The queue is
 * bounded.
 */
#pragma once

#include "lib/base/err.h"

struct loop;
struct pool;

typedef void (*pool_fn)(void *arg);

struct pool *pool_new(struct loop *l, const char *name, unsigned threads, unsigned queue_max);
/* ERR_LIMIT when the queue is full: neither function is called then. */
int pool_submit(struct pool *p, pool_fn work, pool_fn done, void *arg, struct err *err);
void pool_free(struct pool *p); /* runs what is queued, waits; done() of finished work is still
                                   called. NULL is fine */

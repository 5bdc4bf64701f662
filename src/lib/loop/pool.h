/*
 * A small pool of worker threads for blocking work. work() runs on a worker and uses only its
 * argument; afterwards done() runs on the loop. Threads start on demand, up to `threads`, and end
 * when they are idle for a while, so an idle daemon has one thread. The queue has a limit.
 */
#pragma once

#include "lib/base/err.h"

struct loop;
struct pool;

typedef void (*pool_fn)(void *arg);

struct pool *pool_new(struct loop *l, const char *name, unsigned threads, unsigned queue_max);
/* ERR_LIMIT: the queue is full, and neither function is called. */
int pool_submit(struct pool *p, pool_fn work, pool_fn done, void *arg, struct err *err);
/* Runs the queued work, waits, and calls done() for each. NULL is fine. */
void pool_free(struct pool *p);

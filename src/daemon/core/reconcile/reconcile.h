/*
 * Reconcile: what the store wants against what is on the engines. Runs in the background, at the
 * start, on a timer, when an engine is back and on command; one run at a time, each in three steps:
 * list every engine, plan on the loop, then carry out the plan a few at a time on each engine.
 *
 *   adopt         it is what the store wants: nothing is done. With `from_engine` one that the
 *                 store does not know is taken into it
 *   recreate      its config hash is not what this ripcord would make: when it is idle
 *   remove        ours, but the store does not know it, or a legacy object: when nothing runs in it
 *   clean         something of a run is left that no supervisor keeps
 *   mark_stopped  the engine does not have it any more
 *
 * One object's failure is one line of the report, tried again later with growing pauses, and never
 * the end of the others. A command that runs is never ended by any of this. On the loop.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/json.h"

struct manager;
struct engine;
struct sandbox;

struct reconcile_options {
    const char *trigger; /* static: start, timer, retry, engine, command */
    bool dry_run;        /* plan only */
    bool from_engine;    /* what the store does not know is taken into it, not removed */
};

typedef void (*reconcile_fn)(void *arg);

void reconcile_init(struct manager *m);
void reconcile_free(struct manager *m);

/* Queues a run and returns its number. done (may be NULL) is called when it is over, never before
 * this has returned; not when the manager is freed before. */
uint64_t reconcile_request(struct manager *m, const struct reconcile_options *options,
                           reconcile_fn done, void *arg);
/* A run that waits, goes on or was the last to end, as {"run":N, "running":…, "results":[…]}; 0:
 * the one that goes on, else the last. NULL: there is none. */
json_t *reconcile_report(struct manager *m, uint64_t number);
/* A run of all that is open, unless one waits already. */
void reconcile_soon(struct manager *m, const char *trigger);
/* Timer, retries, and sandboxes that were busy when they were to be re-created. */
void reconcile_tick(struct manager *m);

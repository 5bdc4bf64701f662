/*
 * Reconcile: compares the store with the objects on the engines, and repairs differences. Runs in
 * the background: at the start, periodically, when an engine is back, and on command. One run at a
 * time, in three steps: list every engine, plan on the loop (reconcile-plan.c has the decision
 * table), then carry out the plan, a few objects at a time on each engine.
 *
 *   adopt         it is correct: nothing is done. With `from_engine` an object gets its row back
 *   recreate      its configuration hash is out of date: re-created when it is idle
 *   remove        our object without a row, or a legacy object: removed when nothing runs in it
 *   clean         parts of a run are left without a supervisor
 *   mark_stopped  the engine does not have it any more
 *
 * A failure is one line of the report. It is tried again later with growing pauses, and does not
 * stop the other objects. Reconcile never ends a running command. All on the loop.
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
    bool from_engine;    /* adopt objects without a row, do not remove them */
};

typedef void (*reconcile_fn)(void *arg);

void reconcile_init(struct manager *m);
void reconcile_free(struct manager *m);

/* Queues a run and returns its number. done (may be NULL) is called when the run is over, never
 * before this function has returned, and not at all when the manager is freed first. */
uint64_t reconcile_request(struct manager *m, const struct reconcile_options *options,
                           reconcile_fn done, void *arg);
/* Returns a new reference to the report {"run":N, "running":…, "results":[…]} of a run, or NULL.
 * Only runs that are queued or running, and the last one that ended, have a report. Number 0 means
 * the running one or, if none runs, the last one. */
json_t *reconcile_report(struct manager *m, uint64_t number);
/* Queues a run of all open engines, unless one is queued already. */
void reconcile_soon(struct manager *m, const char *trigger);
/* About once a second: the timer, retries, and the re-creation of sandboxes that were busy. */
void reconcile_tick(struct manager *m);

/*
 * Shared by the files of reconcile: a run, its items, and what is remembered between runs.
 */
#pragma once

#include "daemon/core/reconcile/reconcile.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/engine/engine-objects.h"
#include "lib/base/map.h"

enum recon_action { RECON_ADOPT, RECON_RECREATE, RECON_REMOVE, RECON_CLEAN, RECON_MARK };

enum recon_result { RECON_WAITING, RECON_DONE, RECON_DEFERRED, RECON_FAILED };

struct recon_run;

struct reconcile {
    struct manager *m;
    uint64_t numbers;
    struct recon_run *queue; /* the first one runs once `begun` */
    struct recon_run *last;  /* the newest that is over */
    struct map retries;      /* "engine kind ref" -> struct reconcile_retry */
    uint64_t next_at;        /* time_mono() of the next run of the timer */
    unsigned due;            /* deferred calls that will come */
    bool begun, kicked;
};

/* One object and what becomes of it. */
struct recon_item {
    struct recon_run *run;
    struct engine *engine;
    enum recon_action action;
    enum recon_result result;
    enum object_kind kind;
    bool adopts;             /* adopt: into the store */
    bool running;            /* under way */
    bool ended;              /* nothing runs in it any more */
    char id[33];             /* of the sandbox; "" for legacy */
    char *name, *ref, *spec; /* as in struct engine_object; owned */
    char hash[65];           /* read back */
    char *reason, *hint;     /* in words, or NULL */
    uint64_t retry_at;       /* time_mono() of the next try; 0: none */
    struct err err;          /* on the way to item_over() */
};

/* The part of a run that is one engine's. */
struct recon_lane {
    struct engine *engine;
    uint64_t listed_at; /* wall clock, before the engine was asked */
    struct recon_item **items;
    size_t n, ended, next, finished; /* first all that go are ended, where that is worth it */
    unsigned active;
    bool listing;
    char *trouble; /* why it could not be listed */
};

struct recon_run {
    struct manager *m;
    uint64_t number;
    struct reconcile_options options;
    uint64_t started_at, ended_at; /* wall clock; 0: not yet */
    uint64_t started_mono, took;
    struct recon_lane *lanes;
    size_t n_lanes;
    struct recon_run *next; /* in the queue */
    reconcile_fn done;
    void *arg;
};

/* reconcile-plan.c: fills the lane's items. */
void recon_plan(struct recon_run *run, struct recon_lane *lane, const struct engine_objects *list);
/* Every object on that engine belongs to a row: nothing has to be held back there any more. */
bool recon_is_settled(const struct recon_lane *lane);

/* rebuild-sandbox.c: a sandbox that the store does not know, from its objects. */
int rebuild_sandbox(struct manager *m, const struct recon_item *item, struct sandbox **ret,
                    struct err *err);

void recon_item_free(struct recon_item *item);

/* reconcile-retry.c */
void reconcile_retry_later(struct reconcile *rc, struct recon_item *item);
void reconcile_retry_forget(struct reconcile *rc, const struct recon_item *item);
/* In a background run: its time has not come, and the item says what was said the last time. */
bool reconcile_retry_must_wait(const struct reconcile *rc, struct recon_item *item);
bool reconcile_retry_is_due(const struct reconcile *rc);
/* Drops what is about objects that went by other hands. */
void reconcile_retry_trim(struct reconcile *rc);
void reconcile_retry_done(struct reconcile *rc);

/* reconcile-report.c */
const char *recon_action_name(enum recon_action a);

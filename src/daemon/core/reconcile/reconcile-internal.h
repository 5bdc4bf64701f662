/*
 * Shared by the files of reconcile: a run, its lanes and items, and what is remembered between
 * runs.
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
    struct recon_run *queue; /* the first one is running if `begun` */
    struct recon_run *last;  /* the newest run that has ended */
    struct map retries;      /* "engine kind ref" -> struct reconcile_retry */
    uint64_t next_at;        /* time_mono() of the next periodic run */
    unsigned due;            /* deferred calls that are still to come */
    bool begun, kicked;
};

/* One object or sandbox, and its decision. */
struct recon_item {
    struct recon_run *run;
    struct engine *engine;
    enum recon_action action;
    enum recon_result result;
    enum object_kind kind;
    bool adopts;             /* adopt: gets a row in the store */
    bool has_row;            /* is a sandbox of the store */
    bool kept;               /* as in struct engine_object */
    bool running;            /* its action is in progress */
    bool ended;              /* its processes were ended before its removal */
    char id[33];             /* of the sandbox; "" for legacy */
    char *name, *ref, *spec; /* as in struct engine_object; owned */
    char hash[65];           /* as the engine has it */
    char *reason, *hint;     /* text for the report, or NULL */
    uint64_t retry_at;       /* time_mono() of the next try; 0: none */
    struct err err;          /* set before reconcile_over_soon() */
};

/* The part of a run for one engine. */
struct recon_lane {
    struct engine *engine;
    uint64_t listed_at; /* wall clock, before the engine was asked */
    struct recon_item **items;
    size_t n, ended, next,
        finished; /* counters; processes are ended first where the engine wants that */
    unsigned active;
    bool listing;
    char *trouble; /* why the engine could not be listed, or NULL */
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
/* Every object on that engine has a row: the store need not treat itself as new there any more. */
bool recon_is_settled(const struct recon_lane *lane);

/* rebuild-sandbox.c: makes a sandbox and its row from the engine's objects. */
int rebuild_sandbox(struct manager *m, const struct recon_item *item, struct sandbox **ret,
                    struct err *err);

void recon_item_free(struct recon_item *item);

/* reconcile-retry.c */
void reconcile_retry_later(struct reconcile *rc, struct recon_item *item);
void reconcile_retry_forget(struct reconcile *rc, const struct recon_item *item);
/* In a background run: true when its next try is not due. Then the item gets the last result. */
bool reconcile_retry_must_wait(const struct reconcile *rc, struct recon_item *item);
bool reconcile_retry_is_due(const struct reconcile *rc);
/* Forgets retries of objects that were removed by somebody else. */
void reconcile_retry_trim(struct reconcile *rc);
void reconcile_retry_done(struct reconcile *rc);

/* reconcile-report.c */
const char *recon_action_name(enum recon_action a);

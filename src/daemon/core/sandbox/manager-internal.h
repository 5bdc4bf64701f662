/*
 * Shared by the files of core/ that make up the manager.
 */
#pragma once

#include "daemon/core/exec/exec.h"
#include "daemon/core/exec/usage-totals.h"
#include "daemon/core/sandbox/disk-floor.h"
#include "daemon/core/sandbox/lease-clock.h"
#include "daemon/core/sandbox/manager.h"
#include "daemon/core/sandbox/op-queue.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/macro.h"
#include "lib/base/map.h"
#include "lib/store/store.h"

struct manager_build;
struct recovery;
struct reconcile;
struct warm;

struct manager {
    struct manager_config config; /* spec defaults owned */
    struct store *store;
    struct loop *loop;
    struct map sandboxes; /* by name */
    struct recovery *recovery;
    struct reconcile *reconcile;
    bool retaining;       /* a job of daemon/core/exec/output-retention.c is under way */
    bool trimming;        /* the same of daemon/core/caches/mount-caches.c, */
    bool trim_again;      /* and a build has ended since */
    struct exec *unsaved; /* ended ones whose end is not on disk yet */
    unsigned n_unsaved;
    struct disk_floor_watch floor;
    struct tallies tallies;
    struct lease_clock lease_clock; /* what leases are counted on */
    uint64_t reach_at;              /* time_mono() of the next try to open what is not open */
    unsigned reaching;              /* tries under way */
    struct manager_build *builds;   /* images that are being built: daemon/core/images/build.h */
    struct warm *warms;             /* caches that are being filled: daemon/core/caches/warm.h */
    unsigned background_calls;      /* engine calls under way that belong to no operation */
    bool closing;
};

void manager_warn(struct manager *m, const char *fmt, ...) _printf_(2, 3);
/* Whether a question to all engines goes to this one: one that nobody has used yet is not opened
 * for it, but for the one that everybody uses. */
bool manager_asks_engine(const struct manager *m, const struct engine *e);

/* A new object in state `absent`, in the map. */
struct sandbox *sandbox_new(struct manager *m, const char *name);
/* Frees it when it is absent and nobody waits for it. */
void sandbox_maybe_free(struct sandbox *sb);
void sandbox_free(struct sandbox *sb);
/* An ephemeral sandbox lives as long as its execs and their readers: queues its removal when none
 * is left. */
void sandbox_expire(struct sandbox *sb);
int sandbox_make_id(struct sandbox *sb, struct err *err);
int random_hex(char *ret, struct err *err); /* 16 digits and a NUL */

#define STOPPED_ON_REQUEST "stopped on request"
/* The reason of a state that nobody asked for, as long as no better one is known. */
#define SANDBOX_ENDED_ITSELF "its supervisor ended by itself"
/* Begins the reason of one that the engine does not have any more. */
#define SANDBOX_GONE "gone: removed outside ripcord"

/* What the engine says that it does without: kept, and told to the hook when it is new. */
void sandbox_take_warnings(struct sandbox *sb, const struct engine_sandbox *info);
/* Takes the supervisor's socket and listens to it. */
void sandbox_connect(struct sandbox *sb, struct engine_sandbox *info);
void sandbox_unlink(struct sandbox *sb); /* drops the link; live execs are ended as lost */

/* engine-watch.c: what happens behind our back */
void engine_watch_on_news(void *arg, struct engine *e, const struct engine_news *news);
/* Tries those that are out of reach, when somebody would miss them. */
void engine_watch_tick(struct manager *m);
/* Whether somebody would miss the engine: it is the default, or has sandboxes. */
bool engine_watch_is_wanted(struct manager *m, const struct engine *e);
/* Makes our state agree with what the engine says of it. */
struct op *engine_watch_inspect(struct sandbox *sb);

/* daemon/core/reconcile/recovery.c */
int recovery_start(struct manager *m, struct err *err);
void recovery_free(struct recovery *r);
bool recovery_is_done(const struct recovery *r);
void recovery_wait(struct recovery *r, uint64_t limit, manager_fn fn, void *arg);
void recovery_tick(struct recovery *r);
extern const struct op_type op_recover;
/* One that is new to the store: connects to what lives of it. */
struct op *recovery_add(struct sandbox *sb);
/* Ids of rows that could not be made sense of; borrowed, or NULL. */
char **recovery_unread(const struct recovery *r);

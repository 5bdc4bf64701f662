/*
 * The manager's struct, and what the files of core share. For core only.
 */
#pragma once

#include "daemon/core/exec/exec-save.h"
#include "daemon/core/exec/exec.h"
#include "daemon/core/exec/usage-totals.h"
#include "daemon/core/sandbox/disk-budget.h"
#include "daemon/core/sandbox/disk-floor.h"
#include "daemon/core/sandbox/lease-clock.h"
#include "daemon/core/sandbox/manager.h"
#include "daemon/core/sandbox/op-queue.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/macro.h"
#include "lib/base/map.h"
#include "lib/store/store.h"

struct doctor;
struct manager_build;
struct recovery;
struct reconcile;
struct request_key;
struct warm;

struct exec_linger;

struct manager {
    struct manager_config config; /* owns only the defaults */
    struct store *store;
    struct loop *loop;
    struct map sandboxes; /* by name */
    struct recovery *recovery;
    struct reconcile *reconcile;
    bool retaining;   /* a job of daemon/core/exec/output-retention.c is running */
    bool trimming;    /* a trim of daemon/core/caches/mount-caches.c is running */
    bool trim_again;  /* and a build has ended since it began */
    size_t unstarted; /* bytes of large requests (daemon/core/exec/exec-large.h) */
    struct exec_linger *lingering;
    struct exec_save saves;
    struct disk_floor_watch floor;
    struct disk_budget_watch budget;
    struct usage_totals usage_totals;
    struct lease_clock lease_clock;   /* for leases */
    uint64_t open_at;                 /* time_mono() of the next attempt to open closed engines */
    unsigned opening;                 /* attempts that are running */
    struct manager_build *builds;     /* running builds: daemon/core/images/build.h */
    struct warm *warms;               /* caches that are being filled: daemon/core/caches/warm.h */
    struct doctor *doctors;           /* running ones: daemon/core/doctor/doctor.h */
    struct request_key *request_keys; /* of requests that are under way */
    struct store_key_size request_keys_size; /* if counted: of the stored ones */
    bool request_keys_counted;
    uint64_t request_keys_clean_at; /* time_mono() */
    unsigned background_calls;      /* running engine calls outside of operations */
    bool closing;
};

void manager_warn(struct manager *m, const char *fmt, ...) _printf_(2, 3);
/* Whether a request to all engines includes this one. Engines that were never used stay closed,
 * except the default engine. */
bool manager_asks_engine(const struct manager *m, const struct engine *e);
/* NULL without such a sandbox. */

/* Makes a sandbox in state `absent` and adds it to the map. */
struct sandbox *sandbox_new(struct manager *m, const char *name);
/* Frees it when it is absent and not in use. */
void sandbox_maybe_free(struct sandbox *sb);
void sandbox_free(struct sandbox *sb);
/* An ephemeral sandbox lives as long as its execs and their readers. Queues its removal when
 * none is left. */
void sandbox_expire(struct sandbox *sb);
int sandbox_make_id(struct sandbox *sb, struct err *err);
int random_hex(char *ret, struct err *err); /* 16 digits and a NUL */

#define STOPPED_ON_REQUEST "stopped on request"
/* The reason of an unexpected stop, until a better one is known. The database keeps this text. */
#define SANDBOX_ENDED_ITSELF "its supervisor ended by itself"
/* The first words of the reason if the engine has lost the sandbox. The database keeps them. */
#define SANDBOX_GONE "gone: removed outside ripcord"

/* Takes the answer of engine_settle(). True: the engine has a whole sandbox of the stored spec.
 * Else the hash is forgotten, and the next start creates it again. */
bool sandbox_settled(struct sandbox *sb, const struct engine_sandbox *info);
#define ENDED_IN_CREATION "the daemon ended during the creation"
/* Takes that answer after a crash of the daemon, too. Returns the state that the sandbox has now;
 * *ret_why is its reason. */
enum sandbox_state sandbox_settled_state(struct sandbox *sb, const struct err *err,
                                         const struct engine_sandbox *info, const char **ret_why);
/* Takes the engine's warnings over, and reports new ones to the hook. */
void sandbox_take_warnings(struct sandbox *sb, const struct engine_sandbox *info);
/* Takes the supervisor's socket from info and connects to it. The sandbox runs with sb->spec, which
 * must be stored. */
void sandbox_connect(struct sandbox *sb, struct engine_sandbox *info);
void sandbox_unlink(struct sandbox *sb); /* closes the connection; live execs end as lost */

/* engine-watch.c: changes that are made outside ripcord, and engines that cannot be reached */
void engine_watch_on_news(void *arg, struct engine *e, const struct engine_news *news);
/* Tries to open engines that are wanted and closed. */
void engine_watch_tick(struct manager *m);
/* Whether somebody would miss the engine: it is the default, or it has sandboxes. */
bool engine_watch_is_wanted(struct manager *m, const struct engine *e);
/* Queues an operation that asks the engine for the sandbox's state and takes it over. */
struct op *engine_watch_inspect(struct sandbox *sb);

/* daemon/core/reconcile/recovery.c */
int recovery_start(struct manager *m, struct err *err);
void recovery_free(struct recovery *r);
bool recovery_is_done(const struct recovery *r);
void recovery_wait(struct recovery *r, uint64_t limit, manager_fn fn, void *arg);
void recovery_tick(struct recovery *r);
extern const struct op_type op_recover;
/* Queues the recovery of a sandbox that has just got a row: connects to its supervisor, if it
 * lives. */
struct op *recovery_add(struct sandbox *sb);
/* Ids of rows that this version cannot read; borrowed, or NULL. */
char **recovery_unread(const struct recovery *r);

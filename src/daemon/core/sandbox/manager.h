/*
 * The manager of all sandboxes of one root, and the entry to core for the API. All on the loop.
 *
 * Every sandbox has a serial queue of operations: never two at once on one sandbox, while
 * operations on different sandboxes run in parallel. A request that equals the last queued
 * operation joins it and gets its result: twenty `up a` at once are one creation. A done function
 * is never called before the function that registered it has returned.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/sandbox/sandbox.h"
#include "lib/base/json.h"

struct loop;
struct store;
struct exec;
struct exec_request;
struct packages_proxy;
struct event_log;

struct manager_config {
    struct loop *loop;
    struct store *store; /* borrowed */
    struct engine **engines;
    size_t n_engines;
    const char *default_engine;
    struct sandbox_spec defaults;    /* copied */
    char *const *mount_roots;        /* borrowed */
    uint64_t stop_grace;             /* usec, when the caller gives none */
    uint64_t journal_sandbox_budget; /* bytes of the output of its ended execs; 0: no limit */
    uint64_t journal_keep;           /* usec after the end of an exec; 0: for ever */
    uint64_t history_keep;           /* ended execs per sandbox; 0: all */
    const char *state_dir;           /* borrowed: folder of the sandboxes; NULL: no disk_floor */
    uint64_t disk_floor;             /* bytes that must be free there for new work; 0: no check */

    uint64_t disk_budget; /* bytes of a sandbox without a disk limit; 0: any number */

    uint64_t mounts_budget; /* bytes of all cache mounts of builds together */

    struct packages_proxy *packages; /* borrowed: serves network `packages`; NULL: not available */
    bool packages_required;          /* sandboxes with that network do not start without it */

    uint64_t reconcile_interval; /* usec between two runs of reconcile; 0: only at the start */

    struct event_log *events; /* borrowed: the event log; NULL: no events are kept */

    /* Hooks: every change of state, and warnings about failures that no caller waits for. */
    void (*on_state)(void *arg, const struct sandbox *sb, enum sandbox_state from,
                     enum sandbox_state to);
    void (*on_warning)(void *arg, const char *message);
    void *arg;
};

struct manager *manager_new(const struct manager_config *config);
/* Loads the store and starts recovery in the background, which connects to live sandboxes and
 * removes leftovers. */
int manager_start(struct manager *m, struct err *err);
/* No operation begins after this. While manager_busy() is true, some are still running, and
 * neither the engines nor the manager may be freed. */
void manager_close(struct manager *m);
bool manager_busy(const struct manager *m);
/* Disconnects from all sandboxes; they stay up. */
void manager_free(struct manager *m);

/* To be called about once a second: leases, deadlines of operations, background work. */
void manager_tick(struct manager *m);

typedef void (*manager_fn)(void *arg);
/* Calls fn when recovery has examined every sandbox of the store: from then on states are
 * reliable. With a limit (usec; 0: none), after about that time at the latest. */
void manager_when_recovered(struct manager *m, uint64_t limit, manager_fn fn, void *arg);
bool manager_is_recovered(const struct manager *m);

/* On failure NULL, with *err filled (ERR_INVALID or ERR_NOT_FOUND, with the nearest name). */
struct sandbox *manager_find(struct manager *m, const char *name, struct err *err);
/* NULL: no sandbox has this id. */
struct sandbox *manager_find_id(struct manager *m, const char *id);
/* In no particular order, without `absent` ones. */
bool manager_next(struct manager *m, size_t *iter, struct sandbox **ret);

struct engine *manager_engine(struct manager *m, const char *name, struct err *err);
const struct manager_config *manager_settings(const struct manager *m);

/* ---- operations ---- */

enum manager_action {
    ACTION_UNCHANGED,
    ACTION_CHANGED, /* only leases or labels, in place */
    ACTION_CREATED,
    ACTION_STARTED,
    ACTION_RECREATED,
};
const char *manager_action_name(enum manager_action a);

/* err NULL: success. `sb` is valid during the call only, and NULL when the sandbox does not
 * exist. */
typedef void (*manager_done_fn)(void *arg, const struct err *err, const struct sandbox *sb,
                                enum manager_action action);

/* Each returns a failure at once when the request itself is wrong; done is not called then. done
 * may be NULL. */
int manager_ensure(struct manager *m, const char *name, const json_t *spec, manager_done_fn done,
                   void *arg, struct err *err);
int manager_stop(struct manager *m, const char *name, uint64_t grace, manager_done_fn done,
                 void *arg, struct err *err);
int manager_remove(struct manager *m, const char *name, bool force, manager_done_fn done, void *arg,
                   struct err *err);
/* Changes leases (lease.h) only, in any state. */
int manager_lease(struct manager *m, const char *name, const json_t *leases, manager_done_fn done,
                  void *arg, struct err *err);
int manager_pause(struct manager *m, const char *name, bool on, manager_done_fn done, void *arg,
                  struct err *err);

/*
 * Runs a command. Makes the exec at once and returns it with a reference for the caller. Starts the
 * sandbox first if it is not running. The watches of the exec (daemon/core/exec/exec.h) learn its
 * start and end. Empties `req`.
 */
int manager_exec(struct manager *m, const char *name, struct exec_request *req, struct exec **ret,
                 struct err *err);
/* The same in a new ephemeral sandbox, which is removed when the exec has ended. */
int manager_run(struct manager *m, const json_t *spec, struct exec_request *req, struct exec **ret,
                struct err *err);

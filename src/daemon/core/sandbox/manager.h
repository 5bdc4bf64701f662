/*
 * The sandboxes of one root: what exists, what is asked of it, in which order. All on the loop.
 *
 * Every sandbox has a serial queue of operations, so that no two of them ever run on one sandbox at
 * once; operations on different sandboxes run side by side. A call that wants just what the last
 * queued operation is about to do joins it and gets its result (twenty `up a` at once are one
 * creation). A done function is never called before the call that registered it has returned.
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
    uint64_t stop_grace;             /* usec, when the caller names none */
    uint64_t journal_sandbox_budget; /* bytes of its ended execs' output; 0: no limit */
    uint64_t journal_keep;           /* usec after their end; 0: for ever */
    uint64_t history_keep;           /* ended execs of a sandbox; 0: all */
    const char *state_dir; /* borrowed: where sandboxes are kept; NULL: disk_floor means nothing */
    uint64_t disk_floor;   /* bytes that must be free there for new work; 0: none */

    uint64_t mounts_budget; /* bytes of all cache mounts of builds */

    struct packages_proxy *packages; /* borrowed: of network `packages`; NULL: there is none */
    bool packages_required;          /* no sandbox with that network starts without it */

    uint64_t reconcile_interval; /* usec between two looks at everything; 0: only at the start */

    struct event_log *events; /* borrowed: where every change is recorded; NULL: nowhere */

    /* Told of every change, and of what went wrong behind the caller's back. */
    void (*on_state)(void *arg, const struct sandbox *sb, enum sandbox_state from,
                     enum sandbox_state to);
    void (*on_warning)(void *arg, const char *message);
    void *arg;
};

struct manager *manager_new(const struct manager_config *config);
/* Loads the store and starts recovery in the background: adopts what lives, removes what is left
 * over. */
int manager_start(struct manager *m, struct err *err);
/* No operation begins from here on. While manager_busy() some are still under way, and neither the
 * engines nor the manager may be freed. */
void manager_close(struct manager *m);
bool manager_busy(const struct manager *m);
/* Detaches from everything; sandboxes stay up. */
void manager_free(struct manager *m);

/* To be called about once a second: idle stops, overdue operations. */
void manager_tick(struct manager *m);

typedef void (*manager_fn)(void *arg);
/* Calls fn once recovery has looked at everything the store knew: from then on states are true.
 * With a limit (usec; 0: none) after about that time at the latest. */
void manager_when_recovered(struct manager *m, uint64_t limit, manager_fn fn, void *arg);
bool manager_is_recovered(const struct manager *m);

/* NULL with *err filled (ERR_INVALID or ERR_NOT_FOUND, with the nearest name) when there is none.
 */
struct sandbox *manager_find(struct manager *m, const char *name, struct err *err);
/* In no order; `absent` ones are left out. */
bool manager_next(struct manager *m, size_t *iter, struct sandbox **ret);

struct engine *manager_engine(struct manager *m, const char *name, struct err *err);
const struct manager_config *manager_settings(const struct manager *m);

/* ---- operations ---- */

enum manager_action {
    ACTION_UNCHANGED,
    ACTION_CREATED,
    ACTION_STARTED,
    ACTION_RECREATED,
};
const char *manager_action_name(enum manager_action a);

/* err NULL: success. `sb` is valid during the call only, and NULL when it does not exist (any
 * more).
 */
typedef void (*manager_done_fn)(void *arg, const struct err *err, const struct sandbox *sb,
                                enum manager_action action);

/* Each returns failure at once for what is wrong with the request itself; done is not called then.
 * done may be NULL. */
int manager_ensure(struct manager *m, const char *name, const json_t *spec, manager_done_fn done,
                   void *arg, struct err *err);
int manager_stop(struct manager *m, const char *name, uint64_t grace, manager_done_fn done,
                 void *arg, struct err *err);
int manager_remove(struct manager *m, const char *name, bool force, manager_done_fn done, void *arg,
                   struct err *err);
/* Changes leases (lease.h) and nothing else, in every state. */
int manager_lease(struct manager *m, const char *name, const json_t *leases, manager_done_fn done,
                  void *arg, struct err *err);
int manager_pause(struct manager *m, const char *name, bool on, manager_done_fn done, void *arg,
                  struct err *err);

/*
 * Runs a command. The exec is made at once and returned with a reference for the caller; a sandbox
 * that is not running is started first. What becomes of it is told to its watches
 * (daemon/core/exec/exec.h). `req` is emptied.
 */
int manager_exec(struct manager *m, const char *name, struct exec_request *req, struct exec **ret,
                 struct err *err);
/* The same in a new ephemeral sandbox, which goes when the exec ends. */
int manager_run(struct manager *m, const json_t *spec, struct exec_request *req, struct exec **ret,
                struct err *err);

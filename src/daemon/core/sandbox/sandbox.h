/*
 * A live sandbox in memory. Other modules read the fields and change nothing: every change of state
 * goes through sandbox_set_state(), every operation through manager.h.
 *
 * The changes of state (any state may become `removing`; `absent` is never shown):
 *
 *   absent -> creating -> running <-> paused
 *                |          |           |
 *                v          v           v
 *             absent     stopping -> stopped -> running | creating (re-create)
 *                           |           ^
 *                           v           |
 *                         failed -------+     removing -> absent | failed
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "daemon/core/sandbox/disk-budget.h"
#include "daemon/engine/engine.h"
#include "daemon/engine/sandbox-spec.h"

enum { SANDBOX_ID_LEN = 16, SANDBOX_NAME_SIZE = 64 };

enum sandbox_state {
    SANDBOX_ABSENT,
    SANDBOX_CREATING,
    SANDBOX_RUNNING,
    SANDBOX_PAUSED,
    SANDBOX_STOPPING,
    SANDBOX_STOPPED,
    SANDBOX_REMOVING,
    SANDBOX_FAILED,
    SANDBOX_STATE_MAX,
};

/* How its supervisor reaches the packages proxy: a socket in the sandbox's own network
 * namespace, or a Unix socket outside, to which its connections are forwarded. */
enum packages_route { PACKAGES_ROUTE_NONE, PACKAGES_ROUTE_SOCKET, PACKAGES_ROUTE_STREAM };

struct manager;
struct exec;
struct op;
struct copy_call;

struct sandbox {
    struct manager *m;
    char id[SANDBOX_ID_LEN + 1];
    char name[SANDBOX_NAME_SIZE];
    struct engine *engine; /* borrowed from the manager */
    struct sandbox_spec spec;
    char hash[65];
    bool hash_checked; /* the hash is the one that this version computes */
    bool stale;        /* to be re-created as soon as it is idle */
    bool ephemeral;
    bool stored; /* has a row in the store */
    bool want_running;
    enum sandbox_state state;
    uint64_t since, created_at; /* wall clock */
    char *reason;               /* of the state, or NULL */
    uint64_t journal_bytes;     /* output of its ended execs on disk (daemon/core/exec/) */
    uint64_t trim_seq;   /* execs up to this number are beyond history_keep (daemon/core/exec/) */
    uint64_t retain_at;  /* wall clock: when its next output is due for removal */
    uint32_t unenforced; /* enum limit_bit bits */
    bool disk_held;      /* its disk limit or budget cannot be exceeded: told while it is up */
    struct disk_budget_mark disk;
    char **warnings; /* of this run, from the engine */
    bool unsettled;  /* the engine could not clean up after it: to be tried again */
    bool torn;       /* the daemon ended while it was created: the engine must settle first */
    struct supervisor_conn *conn; /* NULL without a live supervisor */
    enum packages_route
        packages_route; /* set by daemon/core/caches/sandbox-packages.c while it is served */
    struct exec *execs; /* live ones */
    unsigned n_execs;
    struct copy_call *transfers; /* running copies and dials */
    unsigned n_transfers;
    unsigned readers; /* ephemeral: readers of ended execs, which need the journals */
    uint64_t next_seq;
    uint64_t up_at, idle_at, down_at; /* readings of the lease clock (lease.c) */
    struct op *ops;                   /* serial queue: the first one is running */
    bool kicked;                      /* a turn of the queue is queued on the loop */

    /* disk-floor.c: bytes on disk at the last two measurements, and whether they were
     * consecutive. */
    uint64_t usage, usage_before;
    unsigned usage_round;
    bool usage_pair;
};

const char *sandbox_state_name(enum sandbox_state s);
enum sandbox_state sandbox_state_parse(const char *name); /* SANDBOX_STATE_MAX: unknown */
bool sandbox_state_may(enum sandbox_state from, enum sandbox_state to);

/*
 * The only way to change the state: checks the table, saves the row, emits the event, calls the
 * hook. Fails without a change when a *new* row cannot be saved. Later a failed save is only a
 * warning: the state in memory follows what really runs.
 */
int sandbox_set_state(struct sandbox *sb, enum sandbox_state to, const char *why, struct err *err);

/* ERR_CONFLICT when it is paused: only `up` and `resume` wake it. */
int sandbox_check_awake(const struct sandbox *sb, struct err *err);

/* Its state was left by the last daemon and is not confirmed yet. */
bool sandbox_is_unsure(const struct sandbox *sb);
#define STATE_RECONCILING "reconciling"
/* The name of its state, or STATE_RECONCILING while that is unsure. */
const char *sandbox_shown_state(const struct sandbox *sb);

/* Writes the whole row (spec, hash, state). */
int sandbox_save(struct sandbox *sb, struct err *err);
/* Makes the next ensure re-create it, whatever its spec is. */
void sandbox_forget_hash(struct sandbox *sb);

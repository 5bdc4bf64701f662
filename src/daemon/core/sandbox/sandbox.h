/*
 * A live sandbox as the manager holds it. Others read the fields and change nothing: every change
 * of state goes through sandbox_set_state(), every operation through manager.h.
 *
 * The moves between states (any state may become `removing`; `absent` is never shown):
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

/* How it reaches the package registry: by a socket in its own network namespace, or by one outside
 * that its connections are carried to. */
enum sandbox_way { WAY_NONE, WAY_SOCKET, WAY_STREAM };

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
    bool hash_checked; /* it is what this version makes of the spec */
    bool stale;        /* to be re-created as soon as it is idle */
    bool ephemeral;
    bool stored; /* has a row */
    bool want_running;
    enum sandbox_state state;
    uint64_t since, created_at; /* wall clock */
    char *reason;               /* why it is in this state, or NULL */
    uint64_t
        journal_bytes; /* daemon/core/exec/output-retention.c: output of its ended execs on disk */
    uint64_t
        trim_seq; /* daemon/core/exec/output-retention.c: up to this number, execs were too many */
    uint64_t retain_at;           /* wall clock: when the next of it may go */
    uint32_t unenforced;          /* enum limit_bit bits */
    char **warnings;              /* what this run does without, in the engine's words */
    bool unsettled;               /* the engine could not clean up behind it: to be tried again */
    struct supervisor_conn *conn; /* while its supervisor lives */
    enum sandbox_way way;         /* daemon/core/caches/sandbox-packages.c; while it is served */
    struct exec *execs;           /* live ones */
    unsigned n_execs;
    struct copy_call *transfers; /* copies and dials under way */
    unsigned n_transfers;
    unsigned readers; /* ephemeral: of execs that have ended; the journals must stay */
    uint64_t next_seq;
    uint64_t up_at, idle_at, down_at; /* lease.c: when it came up, was last used, went down */
    struct op *ops;                   /* serial queue: the first one runs */
    bool kicked;                      /* a turn of the queue is due */

    /* Of disk-floor.c: bytes on the disk at the last two looks, and whether one followed the other.
     */
    uint64_t usage, usage_before;
    unsigned usage_round;
    bool usage_pair;
};

const char *sandbox_state_name(enum sandbox_state s);
enum sandbox_state sandbox_state_parse(const char *name); /* SANDBOX_STATE_MAX: unknown */
bool sandbox_state_may(enum sandbox_state from, enum sandbox_state to);

/*
 * The one way to change state: checks the table, saves the row, tells the manager's hook. The
 * saving of a *new* row is part of the deal (failure leaves the state as it was); later, memory
 * follows the kernel even when the disk does not, and the hook is warned.
 */
int sandbox_set_state(struct sandbox *sb, enum sandbox_state to, const char *why, struct err *err);

/* ERR_CONFLICT when it is paused: only `up` and `resume` wake it. */
int sandbox_check_awake(const struct sandbox *sb, struct err *err);

/* Its state is the last daemon's word: recovery has not seen it yet. Shown as `reconciling`. */
bool sandbox_is_unsure(const struct sandbox *sb);

/* Writes the whole row (spec, hash, state). */
int sandbox_save(struct sandbox *sb, struct err *err);
/* Makes the next ensure re-create it, whatever its spec. */
void sandbox_forget_hash(struct sandbox *sb);

/*
 * The database of the daemon: wanted states and history, in one SQLite file (WAL,
 * synchronous=NORMAL). Only the thread of the loop uses it. It never says which sandboxes run: the
 * kernel or the engine does.
 *
 * Rows are plain values. The strings of a row that a callback gets are borrowed from SQLite and
 * valid during that call only. State names and JSON texts are opaque here; daemon/core interprets
 * them.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct store;

/* Opens or creates the file and migrates it. A newer schema, or a file that is damaged or not a
 * database, is refused, and the file does not change. */
int store_open(const char *path, struct store **ret, struct err *err);
void store_close(struct store *s); /* NULL is fine */

/* A transaction: call begin, write, then call end with the result `r` of the writes. For r >= 0 it
 * commits; for r < 0 it rolls back. It returns r or its own failure. Transactions do not nest. */
int store_begin(struct store *s, struct err *err);
int store_end(struct store *s, int r, struct err *err);

/* ---- meta ---- */

/* The id of this root: 16 hex digits. The first store_open() makes it, and it never changes. The
 * file `root-id` beside the database has a copy. */
const char *store_root_id(const struct store *s);
/* A small text by key. 1 with the text (at most size - 1 bytes), or 0 when it is absent. */
int store_meta_get(struct store *s, const char *key, char *ret, size_t size, struct err *err);
/* sync: the text is on disk before it returns (10 to 40 ms). Otherwise, like all writes, it
 * survives a crash of the daemon, but maybe not of the machine. */
int store_meta_set(struct store *s, const char *key, const char *value, bool sync, struct err *err);

/*
 * When a database was lost, engines have objects without a row. A new database is therefore "held"
 * for each engine until it is settled (every object has a row). Until then an object must not be
 * removed just because it has no row.
 */
bool store_is_held(struct store *s, const char *engine);
int store_settle(struct store *s, const char *engine, struct err *err);

/* ---- sandboxes ---- */

struct store_sandbox {
    const char *id, *name, *engine;
    const char *spec; /* canonical JSON */
    const char *hash;
    bool ephemeral;
    const char *wanted, *state;
    const char *reason;               /* may be NULL */
    uint64_t since, created_at;       /* wall clock, microseconds */
    uint64_t up_at, idle_at, down_at; /* readings of the lease clock of daemon/core; 0: unknown */
};

typedef void (*store_sandbox_fn)(void *arg, const struct store_sandbox *row);

/* Inserts a row, or replaces the row with this id. ERR_CONFLICT: another id has the same name. */
int store_sandbox_put(struct store *s, const struct store_sandbox *row, struct err *err);
/* Updates wanted, state, reason, since and the three clock readings. */
int store_sandbox_set_state(struct store *s, const struct store_sandbox *row, struct err *err);
int store_sandbox_set_idle(struct store *s, const char *id, uint64_t idle_at, struct err *err);
int store_sandbox_delete(struct store *s, const char *id, struct err *err); /* and its execs */
int store_sandbox_each(struct store *s, store_sandbox_fn fn, void *arg, struct err *err);

/* ---- execs ---- */

struct store_exec {
    const char *id, *sandbox_id;
    uint64_t seq;        /* counts up within the sandbox */
    const char *argv;    /* JSON array */
    const char *options; /* JSON object */
    const char *state;
    uint64_t started_at, ended_at; /* 0: not yet */
    const char *end;               /* JSON object, NULL: not ended */
    uint64_t journal;              /* bytes of its journals; known after its end */
    bool journal_gone;             /* the journals were removed */
};

typedef void (*store_exec_fn)(void *arg, const struct store_exec *row);

int store_exec_add(struct store *s, const struct store_exec *row, struct err *err);
int store_exec_end(struct store *s, const char *id, const char *state, uint64_t ended_at,
                   const char *end, uint64_t journal, struct err *err);
struct store_exec_page {
    unsigned limit;
    uint64_t before; /* only execs with a lower seq; 0: all */
    bool sessions;   /* only sessions */
};
/* Newest first. */
int store_exec_each(struct store *s, const char *sandbox_id, const struct store_exec_page *page,
                    store_exec_fn fn, void *arg, struct err *err);
int store_exec_each_open(struct store *s, const char *sandbox_id, store_exec_fn fn, void *arg,
                         struct err *err); /* execs that have not ended */
/* id "last" is the newest. -ERR_NOT_FOUND: no such exec. fn is called at most once. */
int store_exec_get(struct store *s, const char *sandbox_id, const char *id, store_exec_fn fn,
                   void *arg, struct err *err);
/* The newest one that is a session. */
int store_exec_last_session(struct store *s, const char *sandbox_id, store_exec_fn fn, void *arg,
                            struct err *err);
/* Ended execs that still have journals: oldest end first, at most `limit`. */
int store_exec_each_kept(struct store *s, const char *sandbox_id, unsigned limit, store_exec_fn fn,
                         void *arg, struct err *err);
int store_exec_kept_bytes(struct store *s, const char *sandbox_id, uint64_t *ret, struct err *err);
int store_exec_journal_gone(struct store *s, const char *id, struct err *err);
/* Removes the rows of ended execs without journals, up to number `seq`. */
int store_exec_trim(struct store *s, const char *sandbox_id, uint64_t seq, struct err *err);
int store_exec_last_seq(struct store *s, const char *sandbox_id, uint64_t *ret, struct err *err);
int store_exec_count(struct store *s, const char *sandbox_id, uint64_t *ret, struct err *err);

/* ---- events ---- */

struct store_event {
    uint64_t seq, at; /* wall clock */
    const char *kind;
    const char *sandbox_id, *sandbox, *exec; /* may be NULL */
    const char *data;                        /* JSON object, or NULL */
};

typedef void (*store_event_fn)(void *arg, const struct store_event *row);

/* Adds all rows in one transaction. */
int store_event_add(struct store *s, const struct store_event *rows, size_t n, struct err *err);
/* Events after number `after`, in order, at most `limit`. Returns how many. */
int store_event_each(struct store *s, uint64_t after, unsigned limit, store_event_fn fn, void *arg,
                     struct err *err);
/* The oldest number (0: no events), the newest number, and the count. */
struct store_span {
    uint64_t first, last, count;
};
int store_event_span(struct store *s, struct store_span *ret, struct err *err);
int store_event_trim(struct store *s, uint64_t n, struct err *err); /* removes the n oldest */

/* ---- totals ---- */

/* Sums by scope ("label") and name; times in microseconds, sizes in bytes. */
struct store_total {
    const char *scope, *name;
    uint64_t execs, failed, wall, cpu;
    uint64_t memory_peak; /* the maximum, not a sum */
    uint64_t io_read, io_write, output;
    uint64_t updated_at; /* wall clock */
};

typedef void (*store_total_fn)(void *arg, const struct store_total *row);

int store_total_add(struct store *s, const struct store_total *row, struct err *err);
/* name NULL: all names of the scope. */
int store_total_each(struct store *s, const char *scope, const char *name, store_total_fn fn,
                     void *arg, struct err *err);
int store_total_delete(struct store *s, const char *scope, const char *name, struct err *err);
/* Keeps the `keep` rows that were updated last, and removes the others. */
int store_total_trim(struct store *s, const char *scope, uint64_t keep, struct err *err);

/* ---- keys of requests ---- */

/* A request that creates something, under the name that its client gave it, and its answer. */
struct store_key {
    const char *key;
    const char *request; /* a digest of the request */
    uint64_t at;         /* wall clock */
    const char *exec;    /* the id that its exec has, or would have */
    const char *sandbox; /* the name of the exec's sandbox; NULL: no exec was made yet */
    int status;          /* of the answer; 0: not answered yet */
    const char *body;    /* of the answer; NULL: none */
};

typedef void (*store_key_fn)(void *arg, const struct store_key *row);

/* Adds a row without a sandbox and without an answer. */
int store_key_add(struct store *s, const struct store_key *row, struct err *err);
/* 1 if there is such a key, and fn was called; else 0. */
int store_key_get(struct store *s, const char *key, store_key_fn fn, void *arg, struct err *err);
int store_key_set_exec(struct store *s, const char *key, const char *sandbox, struct err *err);
int store_key_set_answer(struct store *s, const char *key, int status, const char *body,
                         struct err *err);
int store_key_delete(struct store *s, const char *key, struct err *err);
/* Removes the keys from before `before`. */
int store_key_expire(struct store *s, uint64_t before, struct err *err);

struct store_key_size {
    uint64_t keys, bytes; /* bytes: of all answers */
};
int store_key_size(struct store *s, struct store_key_size *ret, struct err *err);
/* Removes the oldest key that has an exec or an answer. 0: there is no such key. */
int store_key_drop_oldest(struct store *s, struct err *err);

/*
 * The daemon's memory of intents and history: one SQLite file (WAL, synchronous=NORMAL), used on
 * the loop's thread only. What runs is never read from here: that is the kernel's to say.
 *
 * Rows are plain values. Strings of a row that is handed to a callback are borrowed from SQLite and
 * valid during that call only. State names and JSON texts are opaque here; core gives them meaning.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct store;

/* Opens or makes the file and migrates it. A newer schema, a damaged file or one that is no
 * database is refused, and the file is left as it is. */
int store_open(const char *path, struct store **ret, struct err *err);
void store_close(struct store *s); /* NULL is fine */

/* Several writes as one: all of them, or none. begin, the writes, then end with the first failure
 * (or 0): it commits or takes back, and returns that failure or its own. Not to be nested. */
int store_begin(struct store *s, struct err *err);
int store_end(struct store *s, int r, struct err *err);

/* ---- meta ---- */

/* The id of this root: 16 hex digits, made by the first store_open() and kept for ever, also in the
 * file `root-id` beside the database. */
const char *store_root_id(const struct store *s);
/* A small text of some module's own, by key. 1 and the text (at most size - 1 bytes), or 0. */
int store_meta_get(struct store *s, const char *key, char *ret, size_t size, struct err *err);
/* sync: on the disk before it returns (10 to 40 ms); else as all writes, safe from our own death.
 */
int store_meta_set(struct store *s, const char *key, const char *value, bool sync, struct err *err);

/*
 * A new database may lie over objects of an old one that was lost. Until an engine is settled
 * (every object there has a row) nothing there may be removed because no row knows it.
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
    const char *reason;               /* NULL: none */
    uint64_t since, created_at;       /* wall clock, microseconds */
    uint64_t up_at, idle_at, down_at; /* readings of core's own clock; 0: not known */
};

typedef void (*store_sandbox_fn)(void *arg, const struct store_sandbox *row);

/* Inserts, or replaces the row of the same id. Another id with the same name is ERR_CONFLICT. */
int store_sandbox_put(struct store *s, const struct store_sandbox *row, struct err *err);
/* All of the row but what it is: wanted, state, reason, since, and the three readings. */
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
    uint64_t journal;              /* bytes that its journals take; known when it has ended */
    bool journal_gone;             /* they have been removed */
};

typedef void (*store_exec_fn)(void *arg, const struct store_exec *row);

int store_exec_add(struct store *s, const struct store_exec *row, struct err *err);
int store_exec_end(struct store *s, const char *id, const char *state, uint64_t ended_at,
                   const char *end, uint64_t journal, struct err *err);
/* Newest first, at most `limit`. */
int store_exec_each(struct store *s, const char *sandbox_id, unsigned limit, store_exec_fn fn,
                    void *arg, struct err *err);
int store_exec_each_open(struct store *s, const char *sandbox_id, store_exec_fn fn, void *arg,
                         struct err *err); /* those without an end */
/* id "last" is the newest. -ERR_NOT_FOUND when there is none; fn is called at most once. */
int store_exec_get(struct store *s, const char *sandbox_id, const char *id, store_exec_fn fn,
                   void *arg, struct err *err);
/* Ended ones whose journals are still there: oldest end first, at most `limit`. */
int store_exec_each_kept(struct store *s, const char *sandbox_id, unsigned limit, store_exec_fn fn,
                         void *arg, struct err *err);
int store_exec_kept_bytes(struct store *s, const char *sandbox_id, uint64_t *ret, struct err *err);
int store_exec_journal_gone(struct store *s, const char *id, struct err *err);
/* Rows of ended execs with a number of at most `seq` whose journals are gone. */
int store_exec_trim(struct store *s, const char *sandbox_id, uint64_t seq, struct err *err);
int store_exec_last_seq(struct store *s, const char *sandbox_id, uint64_t *ret, struct err *err);
int store_exec_count(struct store *s, const char *sandbox_id, uint64_t *ret, struct err *err);

/* ---- events ---- */

struct store_event {
    uint64_t seq, at; /* wall clock */
    const char *kind;
    const char *sandbox_id, *sandbox, *exec; /* NULL: of none */
    const char *data;                        /* JSON object, or NULL */
};

typedef void (*store_event_fn)(void *arg, const struct store_event *row);

/* All of them or none, in one transaction. */
int store_event_add(struct store *s, const struct store_event *rows, size_t n, struct err *err);
/* Those after number `after`, in order, at most `limit`; returns how many there were. */
int store_event_each(struct store *s, uint64_t after, unsigned limit, store_event_fn fn, void *arg,
                     struct err *err);
/* Oldest number (0: there are none), newest number, and how many. */
struct store_span {
    uint64_t first, last, count;
};
int store_event_span(struct store *s, struct store_span *ret, struct err *err);
int store_event_trim(struct store *s, uint64_t n, struct err *err); /* the n oldest go */

/* ---- totals ---- */

/* Sums by scope ("label") and name; times in microseconds, sizes in bytes. */
struct store_total {
    const char *scope, *name;
    uint64_t execs, failed, wall, cpu;
    uint64_t memory_peak; /* the highest, no sum */
    uint64_t io_read, io_write, output;
    uint64_t updated_at; /* wall clock */
};

typedef void (*store_total_fn)(void *arg, const struct store_total *row);

int store_total_add(struct store *s, const struct store_total *row, struct err *err);
/* name NULL: all of the scope. */
int store_total_each(struct store *s, const char *scope, const char *name, store_total_fn fn,
                     void *arg, struct err *err);
int store_total_delete(struct store *s, const char *scope, const char *name, struct err *err);
/* Those that were added to least recently go. */
int store_total_trim(struct store *s, const char *scope, uint64_t keep, struct err *err);

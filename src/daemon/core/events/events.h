/*
 * The event log: every change is a numbered event, sent to followers and kept in the store up to a
 * limit. All on the loop.
 *
 * Numbers go up by one and are never used twice, also not after a crash. Events may be missing: a
 * crash lost what was not written yet, the limit removed old ones, or a reader was too slow. The
 * reader then gets an event of kind "gap" in their place, with data {"after": A, "next": N}.
 *
 * Emitting costs a few microseconds: the event goes to memory, and pending events are written in
 * one transaction a moment later. A slow follower delays nobody: it reads at its own pace.
 *
 * Kinds (docs/API.md lists them with their data): "sandbox.<state>" for each change of state,
 * "exec.started", "exec.ended", "daemon.started". New kinds are named "<thing>.<what happened>".
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "lib/base/buf.h"
#include "lib/base/json.h"

struct loop;
struct store;
struct sandbox;
struct event_log;

enum { EVENT_KIND_MAX = 40, EVENT_TEXT_MAX = 16 << 10 };

struct event {
    uint64_t seq, at; /* at: wall clock */
    const char *kind;
    const char *sandbox_id, *sandbox, *exec; /* ids and a name; NULL: not about one */
    const char *data;                        /* JSON object, or NULL */
};

/* keep: how many events are kept; 0: only those that are not written yet. */
int events_open(struct loop *loop, struct store *store, uint64_t keep, struct event_log **ret,
                struct err *err);
/* Writes pending events. All watches must be removed before. NULL is allowed. */
void events_close(struct event_log *ev);
/* Writes pending events now. */
void events_flush(struct event_log *ev);

/*
 * Adds an event. ev NULL: there is no event log, and nothing happens. Texts are copied; data is
 * taken (an object, or NULL). Followers are notified on a later turn of the loop.
 */
void events_emit(struct event_log *ev, const char *kind, const struct sandbox *sb, const char *exec,
                 json_t *data);
/* The same for a sandbox that is not in memory, by its id and name. Both NULL: the event
 * has no sandbox. */
void events_emit_of(struct event_log *ev, const char *kind, const char *sandbox_id,
                    const char *sandbox, const char *exec, json_t *data);

/* ---- reading ---- */

struct event_reader {
    uint64_t after;      /* number of the last event that was read */
    const char *sandbox; /* borrowed: name or id; NULL: all */
    const char *kind;    /* borrowed: a kind, or its part before the dot; NULL: all */
};

/* The present name of a kind or of its part before the dot: `kind` itself, or a name in ret. The
 * events `packages.*` were called `registry.*`; the old words work for one more version. */
const char *events_kind_now(const char *kind, char ret[static EVENT_KIND_MAX]);
/* The number of the newest event, 0 before the first. */
uint64_t events_newest(const struct event_log *ev);
/* The number before that of the oldest event that is kept. */
int events_before_oldest(struct event_log *ev, uint64_t *ret, struct err *err);

/* e is valid during the call only. */
typedef void (*event_fn)(void *arg, const struct event *e);
/* Examines up to `limit` events after r->after, passes the matching ones and gaps to fn, and
 * advances r->after. Returns how many it examined: 0 when there are no more. */
int events_read(struct event_log *ev, struct event_reader *r, unsigned limit, event_fn fn,
                void *arg, struct err *err);

/* Notified when there are new events. Embedded by its owner, who removes it. */
struct events_watch {
    struct events_watch *next;
    void (*fn)(void *arg);
    void *arg;
};
void events_watch_add(struct event_log *ev, struct events_watch *w);
void events_watch_remove(struct event_log *ev, struct events_watch *w);

/* One JSON object, without a line break. */
int event_to_text(const struct event *e, struct buf *b) _must_check_;

/*
 * What has happened, as numbered events: every change is one, told to whoever follows, and kept in
 * the store up to a limit. On the loop.
 *
 * Numbers go up by one and never come twice, not after a crash either. Where some are missing (a
 * crash took what was not written yet, the limit took old ones, a reader was too slow) the reader
 * is told by an event of kind "gap" in their place: data {"after": A, "next": N}.
 *
 * Emitting costs a few microseconds: the event is put in memory, and what has gathered is written
 * in one transaction a moment later. A follower never holds anybody up: it reads when it can.
 *
 * Kinds (docs/API.md lists them with their data): "sandbox.<state>" for each change of state,
 * "exec.started", "exec.ended", "daemon.started"; others name theirs "<thing>.<what happened>".
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
struct events;

enum { EVENT_KIND_MAX = 40, EVENT_TEXT_MAX = 16 << 10 };

struct event {
    uint64_t seq, at; /* at: wall clock */
    const char *kind;
    const char *sandbox_id, *sandbox, *exec; /* ids and a name; NULL: of none */
    const char *data;                        /* JSON object, or NULL */
};

/* keep: how many are kept; 0: none but those that are not written yet. */
int events_open(struct loop *loop, struct store *store, uint64_t keep, struct events **ret,
                struct err *err);
/* Writes what is left. Nobody may follow any more. NULL is fine. */
void events_close(struct events *ev);
/* Writes what has gathered now. */
void events_flush(struct events *ev);

/*
 * One more event. ev NULL: nobody keeps events, nothing happens. Texts are copied; data is taken
 * (an object, or NULL). Followers hear of it on a later turn of the loop.
 */
void events_emit(struct events *ev, const char *kind, const struct sandbox *sb, const char *exec,
                 json_t *data);
/* The same of what is no live sandbox: of a sandbox by its id and name, or of none (NULL). */
void events_emit_of(struct events *ev, const char *kind, const char *sandbox_id,
                    const char *sandbox, const char *exec, json_t *data);

/* ---- reading ---- */

struct event_reader {
    uint64_t after;      /* the number of the last one that was read */
    const char *sandbox; /* borrowed: name or id; NULL: all */
    const char *kind;    /* borrowed: a kind, or what stands before its dot; NULL: all */
};

/* The number of the newest event, 0 before the first. */
uint64_t events_newest(const struct events *ev);
/* Just before the oldest one that is kept. */
int events_before_oldest(struct events *ev, uint64_t *ret, struct err *err);

/* e is valid during the call only. */
typedef void (*event_fn)(void *arg, const struct event *e);
/* Looks at up to `limit` events behind r->after, hands on those that are asked for, and gaps, and
 * moves r->after. Returns how many it looked at: 0 when there are no more. */
int events_read(struct events *ev, struct event_reader *r, unsigned limit, event_fn fn, void *arg,
                struct err *err);

/* Somebody who wants to hear that there are new ones. Embedded by its owner, who removes it. */
struct events_watch {
    struct events_watch *next;
    void (*fn)(void *arg);
    void *arg;
};
void events_watch_add(struct events *ev, struct events_watch *w);
void events_watch_remove(struct events *ev, struct events_watch *w);

/* One JSON object, without a line break. */
int event_to_text(const struct event *e, struct buf *b) _must_check_;

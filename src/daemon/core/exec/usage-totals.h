/*
 * What all execs have used together: of each sandbox, of each label, and of the root. Sums outlive
 * the rows of the execs and, but for a sandbox's own, the sandboxes; throw-away ones count as well.
 *
 * What an exec has used is added in memory, and written with its end where that is written; for
 * runs, whose ends are not, a moment later in one transaction for many.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/map.h"

struct exec;
struct loop;
struct loop_timer;
struct manager;
struct sandbox;
struct store;

struct tallies {
    struct store *store; /* borrowed */
    struct loop_timer *timer;
    struct map pending;  /* struct sum, by scope and name */
    unsigned labels_new; /* flushed since the last trim */
};

void usage_totals_open(struct tallies *t, struct loop *loop, struct store *store);
void usage_totals_close(struct tallies *t);

/* An exec of sb has ended. */
void usage_totals_add(struct tallies *t, const struct sandbox *sb, const struct exec *x);
/* Writes what is pending into the caller's transaction; usage_totals_written() when that is committed. */
int usage_totals_write(struct tallies *t, struct err *err);
void usage_totals_written(struct tallies *t);
/* The sandbox has gone. */
void usage_totals_forget(struct tallies *t, const char *sandbox_id);

/* {"execs","failed","wall_ms",…} of one sandbox. New reference. */
int usage_totals_of(struct tallies *t, const char *sandbox_id, json_t **ret, struct err *err);
/* {"all":…,"labels":{"k=v":…}}. */
int usage_totals_all(struct tallies *t, json_t **ret, struct err *err);

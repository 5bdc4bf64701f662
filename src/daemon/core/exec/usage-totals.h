/*
 * What all execs have used in total: per sandbox, per label, and for the whole root. Totals outlive
 * the rows of the execs. Those of labels and of the root also outlive the sandboxes. Throw-away
 * sandboxes count as well.
 *
 * The usage of an exec is added in memory and written in the transaction of its end: exec-save.h.
 * All on the loop.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/map.h"

struct exec;
struct manager;
struct sandbox;
struct store;

struct usage_totals {
    struct store *store; /* borrowed */
    struct map pending;  /* struct usage_sum, by "scope:name" */
    unsigned labels_new; /* written since the last trim */
};

void usage_totals_open(struct usage_totals *t, struct store *store);
void usage_totals_close(struct usage_totals *t);

/* An exec of sb has ended. */
void usage_totals_add(struct usage_totals *t, const struct sandbox *sb, const struct exec *x);
bool usage_totals_is_pending(const struct usage_totals *t);
/* Writes pending sums into the caller's transaction. To be followed by usage_totals_written()
 * when the transaction is committed. */
int usage_totals_write(struct usage_totals *t, struct err *err);
void usage_totals_written(struct usage_totals *t);
/* To be called when the sandbox is removed. */
void usage_totals_forget(struct usage_totals *t, const char *sandbox_id);

/* {"execs","failed","wall_ms",…} of one sandbox, as far as it is written. New reference. */
int usage_totals_of(struct usage_totals *t, const char *sandbox_id, json_t **ret, struct err *err);
/* {"all":…,"labels":{"k=v":…}}. */
int usage_totals_all(struct usage_totals *t, json_t **ret, struct err *err);

/*
 * The disk budget of sandboxes that neither a project quota nor a disk image holds: they are
 * watched, and one that uses more than its budget is stopped; its files stay. A sandbox that is
 * over its budget when it starts (the budget may have been lowered, or it was stopped for that) may
 * run, so that files can be deleted, but not grow.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/usage.h"

struct engine_usage;
struct err;
struct loop_timer;
struct manager;
struct sandbox;

/* What is known about one sandbox; all zero: nothing. */
struct disk_budget_mark {
    struct disk_usage taken;   /* of the whole file system, when the sandbox was measured */
    struct disk_usage had;     /* its own then */
    struct disk_usage allowed; /* it is stopped above this */
    uint64_t due;              /* time_mono() of the next measurement while a command runs */
    bool known, measuring;
    bool deep; /* it has been stopped for folders that are too deep to measure */
};

struct disk_budget_watch {
    struct disk_usage free;   /* of the file system, at the last look */
    struct disk_usage taken;  /* sum of all decreases of `free` that were seen */
    struct loop_timer *hurry; /* looks again soon while much is written; NULL: not needed yet */
    unsigned pending;         /* sandboxes that are being measured */
};

/* Called by manager_tick(). */
void disk_budget_tick(struct manager *m);
void disk_budget_close(struct manager *m);
/* The sandbox is new: it has no files. */
void disk_budget_mark_new(struct sandbox *sb);
/* The sandbox has started, or was found running. */
void disk_budget_begin(struct sandbox *sb);
/* It was stopped for its budget, and this is what it has at rest. */
void disk_budget_settle(struct sandbox *sb, const struct err *err, const struct disk_usage *has);
/* Whether the sandbox runs with a budget that nothing holds. */
bool disk_budget_is_watched(const struct sandbox *sb);

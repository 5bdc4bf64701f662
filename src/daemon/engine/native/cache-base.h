/*
 * The shared base of the package caches: `ripcord cache warm` fills it, and each sandbox with a
 * `layered` cache sees it below its own layer, read-only.
 *
 * A generation is a folder <number>/cache/<tool>/ and never changes, because sandboxes run on it. A
 * change makes a new folder, in which unchanged files are hard links; one rename then moves the
 * link `current`. Generation 0 is empty and always exists. The link `base` in a run's folder names
 * the generation of that run; generations without a run are removed.
 *
 * Any thread; one thread publishes at a time.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

/* In a run's folder: the generation that the run uses. */
#define CACHE_BASE_LINK "base"

struct cache_base {
    char *dir;     /* NULL: the base could not be opened */
    char *trouble; /* the reason, or NULL */
    int dirfd;
    bool chown; /* ids on disk are 0-based: the agent's files belong to 1000 */
    pthread_mutex_t publishing;
    pthread_mutex_t lock; /* over `current` and the links in the runs' folders */
    char *current;
};

void cache_base_init(struct cache_base *b);
/* err must not be NULL: its message is kept, and later calls fail with it. */
int cache_base_open(struct cache_base *b, const char *dir, bool chown, struct err *err);
void cache_base_done(struct cache_base *b);

/* *ret: path of the current generation (or the empty one). The link in the run's folder is made. */
int cache_base_take(struct cache_base *b, bool empty, int run, char **ret, struct err *err);

/* Makes a generation in which `tool` has the contents of the archive: one folder of that name. */
int cache_base_publish(struct cache_base *b, const char *tool, int tar_fd, struct err *err);
/* Makes a generation without `tool`; NULL: goes back to the empty one. */
int cache_base_drop(struct cache_base *b, const char *tool, struct err *err);
/* Removes the generations that are neither current nor used by a run below `runs`. Best effort. */
void cache_base_sweep(struct cache_base *b, int runs);

/* Whether the run uses a generation that is not current: a sweep after its end may remove it. */
bool cache_base_is_old(struct cache_base *b, int runs, const char *id);

/* Bytes of a tool in the current generation, and the time when that generation was made (usec, wall
 * clock). */
int cache_base_usage(struct cache_base *b, const char *tool, const struct deadline *by,
                     uint64_t *ret_bytes, uint64_t *ret_made, struct err *err);

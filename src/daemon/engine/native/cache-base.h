/*
 * The shared base of package caches: what `ripcord cache warm` has filled, and what every sandbox
 * with a `layered` cache sees below its own layer. Sandboxes only ever get a read-only view of it.
 *
 * A generation is a folder <number>/cache/<tool>/ and is never changed once it is there: sandboxes
 * run on it. A change is a new folder, in which what stayed the same is linked; the link `current`
 * then moves over in one rename. Generation 0 is empty and always there. Who runs on which one is
 * noted in the run's folder (link `base`), and what nobody runs on goes.
 *
 * Safe to call from several threads; one publishes at a time.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/time.h"

/* In a run's folder: the generation that it stands on. */
#define CACHE_BASE_LINK "base"

struct cache_base {
    char *dir;     /* NULL: it could not be opened, */
    char *trouble; /* for this reason */
    int dirfd;
    bool chown; /* ids on disk are 0-based: the agent's files are 1000's */
    pthread_mutex_t publishing;
    pthread_mutex_t lock; /* over the next one, and over notes of who runs on it */
    char *current;
};

void cache_base_init(struct cache_base *b);
/* err must not be NULL: what went wrong is told again by those who need it. */
int cache_base_open(struct cache_base *b, const char *dir, bool chown, struct err *err);
void cache_base_done(struct cache_base *b);

/* Path of the present generation (or the empty one), noted in the folder of the run that will stand
 * on it. */
int cache_base_take(struct cache_base *b, bool empty, int run, char **ret, struct err *err);

/* A new generation in which `tool` has what the archive holds: one folder of that name. */
int cache_base_publish(struct cache_base *b, const char *tool, int tar_fd, struct err *err);
/* A new generation without `tool`; NULL: without any. */
int cache_base_drop(struct cache_base *b, const char *tool, struct err *err);
/* Removes all that is neither present nor noted in a folder below `runs`. Best effort. */
void cache_base_sweep(struct cache_base *b, int runs);

/* Whether that run stands on a generation that is not the present one: when it has gone, a sweep
 * may find something. */
bool cache_base_is_old(struct cache_base *b, int runs, const char *id);

/* Bytes of a tool in the present generation, and when that was made (usec, wall clock). */
int cache_base_usage(struct cache_base *b, const char *tool, const struct deadline *by,
                     uint64_t *ret_bytes, uint64_t *ret_made, struct err *err);

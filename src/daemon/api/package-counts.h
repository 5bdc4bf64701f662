/*
 * Counts what the package cache served to one sandbox between package_counts_new() and
 * package_counts_stop(). All on the loop's thread.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/json.h"

struct packages_proxy;
struct package_counts;

/* The counters of a sandbox in a STATS document of the package cache, as a new reference. NULL: the
 * document has none. */
json_t *package_counts_counters(const char *stats, const char *sandbox_id);

struct package_counts *package_counts_new(struct packages_proxy *k, const char *sandbox_id);
/* After this, `done` is not called. Accepts NULL. */
void package_counts_free(struct package_counts *t);
/*
 * Ends the counting. False: the package cache has served nothing to this sandbox. True: `done` is
 * called once, after this function has returned, with {"pypi": {"hits": …}, "npm": …} (borrowed),
 * or NULL if the package cache ended in between.
 */
typedef void (*package_counts_fn)(void *arg, json_t *packages);
bool package_counts_stop(struct package_counts *t, package_counts_fn done, void *arg);

/*
 * What the package registry served to one sandbox between two moments. All on the loop.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/json.h"

struct packages_proxy;
struct package_counts;

/* The counters of a sandbox in a STATS document of the registry; NULL: it has none. New reference.
 */
json_t *package_counts_counters(const char *stats, const char *sandbox_id);

/* From now on. */
struct package_counts *package_counts_new(struct packages_proxy *k, const char *sandbox_id);
void package_counts_free(
    struct package_counts *t); /* its function is not called any more; NULL is fine */
/*
 * Until now: the second moment is this call. False: the registry has served it nothing. Else `done`
 * is called once, not before it has returned: {"pypi": {"hits": …}, "npm": …}, borrowed; NULL when
 * that is not known, the registry having ended meanwhile.
 */
typedef void (*package_counts_fn)(void *arg, json_t *packages);
bool package_counts_stop(struct package_counts *t, package_counts_fn done, void *arg);

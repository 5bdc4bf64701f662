/*
 * What the package registry served to one sandbox between two moments. All on the loop.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/json.h"

struct keeper;
struct tally;

/* The counters of a sandbox in a STATS document of the registry; NULL: it has none. New reference.
 */
json_t *tally_counters(const char *stats, const char *sandbox_id);

/* From now on. */
struct tally *tally_new(struct keeper *k, const char *sandbox_id);
void tally_free(struct tally *t); /* its function is not called any more; NULL is fine */
/*
 * Until now: the second moment is this call. False: the registry has served it nothing. Else `done`
 * is called once, not before it has returned: {"pypi": {"hits": …}, "npm": …}, borrowed; NULL when
 * that is not known, the registry having ended meanwhile.
 */
typedef void (*tally_fn)(void *arg, json_t *packages);
bool tally_stop(struct tally *t, tally_fn done, void *arg);

/*
 * The folders of a confined sandbox, below <state>/sandboxes/<id>/confined:
 *
 *   home    its /home/agent, with the files that a home has at the start
 *   cache   its package caches
 *   tmp     its $TMPDIR, empty at each start
 *   bin     our own commands, first in its PATH
 *
 * home, cache and tmp belong to the sandbox's user. The owner of home is the record of who that is.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

struct native_engine;

/* Makes what is missing, in the sandbox's folder `dir`. */
int confined_home_make(struct native_engine *n, const char *id, int dir, struct err *err);
/* Before a start: empties tmp, lets the user pass the folders above. *ret_own: the user's id; 0:
 * ours. */
int confined_home_begin(struct native_engine *n, const char *id, uint32_t *ret_own,
                        struct err *err);
/* After the end: removes what the user left in shared memory. */
void confined_home_end(struct native_engine *n, const char *id);

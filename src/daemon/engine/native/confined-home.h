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

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct native_engine;

/* Makes what is missing, in the sandbox's folder `dir`. */
int confined_home_make(struct native_engine *n, const char *id, int dir, struct err *err);
/* Before a start: empties tmp, lets the user pass the folders above. *ret_own: the user's id; 0:
 * ours. */
int confined_home_begin(struct native_engine *n, const char *id, uint32_t *ret_own,
                        struct err *err);
/* The user id of a sandbox, by its home's owner; 0: no home yet, or it has none of its own. */
uint32_t confined_home_owner(const struct native_engine *n, const char *id);
/* Whether /etc/passwd has it: then it is not a sandbox's alone any more. */
bool confined_home_has_account(uint32_t uid);
/* After the end: removes what such a user left in /dev/shm. */
void confined_home_sweep_shared_memory(uint32_t uid);

/*
 * The subordinate ids of the user who runs the daemon: a range in /etc/subuid and one in
 * /etc/subgid, and the programs that may map them.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/os/submap.h"

/* What this user can have here. uid 0 in *ret and a reason in err when that is nothing. */
int subids_find(struct submap *ret, struct err *err);

/* One file's first range of enough ids for a user, given as a line's first field by name or number;
 * 0 when there is none. The text is cut up. */
uint32_t subids_parse(char *text, const char *name, uint32_t uid);

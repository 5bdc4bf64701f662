/*
 * The subordinate ids of the daemon's user: a range in /etc/subuid and one in
 * /etc/subgid, and the programs that may map them.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/os/submap.h"

/* The ranges of this user. On failure uid in *ret is 0. */
int subids_find(struct submap *ret, struct err *err);

/* The first id of the first large enough range of a user in the text of such a file, in which a
 * line begins with the user's name or number; 0: none. Changes the text. */
uint32_t subids_parse(char *text, const char *name, uint32_t uid);

/*
 * The keys of ssh sessions, in the folder `ssh` of the state folder of this user: one pair for the
 * client, one for the servers in sandboxes, and a known_hosts file. ssh-keygen makes them once.
 */
#pragma once

#include "lib/base/err.h"

/* Makes the keys if there are none. *ret: the folder, absolute; the caller frees it. */
int ssh_keys_make(const char *state, char **ret, struct err *err);

/*
 * Capabilities, by the raw system calls and always read back: what the kernel says it kept is what
 * counts.
 */
#pragma once

#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

#define CAPS_BIT(cap) (UINT64_C(1) << (cap))
#define CAPS_NONE UINT64_C(0)

/* Takes everything outside `keep` from the bounding set and empties the ambient set. Needs
 * CAP_SETPCAP, so it comes before caps_set(). */
int caps_bound(uint64_t keep, struct err *err);
/* permitted = effective = keep, inheritable = none; fails unless reading back says the same. */
int caps_set(uint64_t keep, struct err *err);
/* For good another user, in no other group and without any capability. */
int caps_become(uid_t uid, gid_t gid, struct err *err);

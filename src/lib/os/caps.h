/*
 * Sets capabilities with the raw system calls, and reads them back to check the result.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

#define CAPS_BIT(cap) (UINT64_C(1) << (cap))
#define CAPS_NONE UINT64_C(0)

/* Drops all capabilities but `keep` from the bounding set and clears the ambient set. It needs
 * CAP_SETPCAP, so call it before caps_set(). */
int caps_bound(uint64_t keep, struct err *err);
/* Sets permitted = effective = keep and inheritable = 0; fails when reading back differs. */
int caps_set(uint64_t keep, struct err *err);
bool caps_have(int cap); /* in the effective set */
/* Becomes another user for good, with this group only and without capabilities. */
int caps_become(uid_t uid, gid_t gid, struct err *err);

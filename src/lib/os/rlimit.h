/*
 * Resource limits of the calling process.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

/* Sets soft and hard limit; where the hard limit is lower already and may not be raised, that one
 * stands. */
int rlimit_set(int resource, uint64_t soft, uint64_t hard, struct err *err);

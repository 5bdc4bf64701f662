/*
 * Resource limits of the calling process.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

/* Sets the soft and hard limit. When the hard limit is lower and cannot be raised, it stays. */
int rlimit_set(int resource, uint64_t soft, uint64_t hard, struct err *err);

/*
 * Times as Go writes them: "1h30m", "1.5s", "300ms"; unlike parse_duration() a unit is a must, and
 * ns and µs are units. HEALTHCHECK's flags are such.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

#define DURATION_MILLISECOND ((int64_t)1000000)

int duration_parse(const char *s, int64_t *ret_ns, struct err *err);

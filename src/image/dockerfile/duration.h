/*
 * Durations in the form of Go, for the flags of HEALTHCHECK: "1h30m", "1.5s", "300ms". Unlike
 * parse_duration(), a unit is required, and ns and µs are units.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

#define DURATION_MILLISECOND ((int64_t)1000000)

int duration_parse(const char *s, int64_t *ret_ns, struct err *err);

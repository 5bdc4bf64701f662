/*
 * States and ends of execs as short texts for tables.
 */
#pragma once

#include <jansson.h>

#include "cli/output.h"
#include "lib/base/parse.h"

enum output_color state_color(const char *state);
/* How an exec ended ("exit 0", "signal TERM", "oom"), or its state while it runs. */
#define STATE_END_MAX 48
const char *state_end(const json_t *exec, char buf[static STATE_END_MAX]);
/* The time from the start to the end, or to now while it runs. */
const char *state_duration(const json_t *exec, char buf[static FORMAT_MAX]);

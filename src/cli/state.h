/*
 * States and ends in one word, for tables.
 */
#pragma once

#include <jansson.h>

#include "cli/output.h"
#include "lib/base/parse.h"

enum output_color state_color(const char *state);
/* "exit 0", "signal TERM", "oom": how an exec ended; its state while it has not. */
#define STATE_END_MAX 48
const char *state_end(const json_t *exec, char buf[static STATE_END_MAX]);
/* From start to end, or to now. */
const char *state_duration(const json_t *exec, char buf[static FORMAT_MAX]);

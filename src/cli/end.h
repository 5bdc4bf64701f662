/*
 * The end record in words, and the exit status that it stands for.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* One line for every end but a plain exit; NULL for that. timeout_ms: what was asked for, or 0. The
 * text is the caller's. */
char *end_words(const json_t *end, uint64_t timeout_ms, uint64_t idle_timeout_ms);
/* What the command used, as one line. */
char *end_stats(const json_t *end);
/* What the sandbox had of the package registry meanwhile, as one line; NULL: nothing. */
char *end_packages(const json_t *end);
int end_status(const json_t *end);

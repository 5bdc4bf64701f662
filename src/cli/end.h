/*
 * The end record of a command as text, and its exit status.
 */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

/* One line that explains the end, or NULL for a plain exit. timeout_ms and idle_timeout_ms: the
 * requested values, or 0. The caller frees the text. */
char *end_words(const json_t *end, uint64_t timeout_ms, uint64_t idle_timeout_ms);
/* The resource usage as one line. The caller frees it. */
char *end_stats(const json_t *end);
/* The package cache statistics of the command as one line, or NULL without requests. The caller
 * frees it. */
char *end_packages(const json_t *end);
int end_status(const json_t *end);

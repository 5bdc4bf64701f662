/*
 * Globs: `*` and `?` stand for text within a name, `**` as a whole name for any folders, `[a-z]`
 * and `[!a-z]` for one byte; a backslash takes the next byte literally. The time is bounded by the
 * product of both lengths.
 */
#pragma once

#include <stdbool.h>

/* A glob without a slash is for `name`, one with a slash for the path below the top. */
bool files_match_path(const char *glob, const char *rel, const char *name);

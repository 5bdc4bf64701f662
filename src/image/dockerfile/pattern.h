/*
 * Patterns of ${name#pattern}, ${name%pattern} and ${name/pattern/text}: `*` is any text within a
 * line, `?` one character, a backslash escapes *, ? and itself.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/buf.h"
#include "lib/base/err.h"

/* Each appends to *ret. greedy: the longest match instead of the shortest. */
int pattern_trim_prefix(const char *pattern, const char *value, bool greedy, struct buf *ret,
                        struct err *err);
int pattern_trim_suffix(const char *pattern, const char *value, bool greedy, struct buf *ret,
                        struct err *err);
int pattern_replace(const char *pattern, const char *value, const char *with, bool all,
                    struct buf *ret, struct err *err);

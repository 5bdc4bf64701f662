/*
 * .dockerignore: the files of a build context that are left out. The last pattern that matches a path
 * or one of its parents decides; a pattern with `!` includes the path again.
 *
 *   *    any text without '/'      **   any number of folders      ?  one character
 *   [a-z] one of these             \x   x itself                   #  a comment, first on its line
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/cleanup.h"
#include "lib/base/err.h"

struct ignore;

enum {
    IGNORE_SIZE_MAX = 1 << 20,
    IGNORE_PATTERNS_MAX = 10000,
    IGNORE_PATTERN_MAX = 4096, /* bytes of one pattern */
};

/* The error names the line. */
int ignore_parse(const char *text, size_t len, struct ignore **ret, struct err *err);
/* One pattern per entry; '#' begins no comment here. The error names the pattern. */
int ignore_from_list(char *const *patterns, struct ignore **ret, struct err *err);
void ignore_free(struct ignore *ig);
DEFINE_CLEANUP(struct ignore *, ignore_free);

/* path: relative to the context, without '/' at its start and end. */
bool ignore_matches(const struct ignore *ig, const char *path);
/* False: a folder that matches can be skipped, because no `!` pattern includes a file in it. */
bool ignore_has_exceptions(const struct ignore *ig);

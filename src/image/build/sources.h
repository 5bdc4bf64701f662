/*
 * Files that a COPY or a mount names: paths and patterns below a folder that others have filled.
 * Every path is looked up as if that folder were the root, whatever its links say.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

/* open(2) with that folder as its root; flags as there, O_CLOEXEC is added. fd or -errno. */
int sources_open(int root, const char *path, int flags);
int sources_open_path(int root, const char *path, int *ret, struct err *err); /* O_PATH, follows */

/*
 * The paths that a source means, sorted, without a slash at either end ("" is the folder itself):
 * itself, or with a pattern (* ? [a-z] \x) what fits, which may be nothing. ERR_NOT_FOUND for a
 * plain path that is not there.
 */
int sources_match(int root, const char *pattern, char ***ret, struct err *err);
bool sources_is_pattern(const char *source);
/* As a pattern that means this path alone; new. */
char *sources_literal(const char *path);
/* The last part of a path. */
const char *sources_name(const char *path);

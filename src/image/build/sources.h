/*
 * Files that a COPY or a mount names: paths and patterns below an untrusted folder. Every path is
 * resolved with that folder as the root, so links cannot lead out of it.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

/* open(2) with the folder as its root; adds O_CLOEXEC. fd or -errno. */
int sources_open(int root, const char *path, int flags);
/* The same with O_PATH; follows links. ERR_NOT_FOUND: no such file. */
int sources_open_path(int root, const char *path, int *ret, struct err *err);

/*
 * The paths of a source, sorted, without a slash at either end ("" is the folder itself). A pattern
 * (* ? [a-z] \x) gives the matching paths, perhaps none. A plain path gives itself, or
 * ERR_NOT_FOUND.
 */
int sources_match(int root, const char *pattern, char ***ret, struct err *err);
bool sources_is_pattern(const char *source);
/* A pattern that matches only this path; the caller frees it. */
char *sources_literal(const char *path);
/* The last part of a path. */
const char *sources_name(const char *path);

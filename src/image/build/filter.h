/*
 * Which files a source of COPY and ADD means: `--parents` and `--exclude`. Patterns are those of
 * .dockerignore. They match paths below the source, or the name of a source that is a file.
 *
 * With `--parents` the first "/./" splits a source. The part before it is the folder where paths
 * begin; the part after it is copied with its folders. Without "/./" paths begin at the root.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/cleanup.h"
#include "lib/base/err.h"

struct filter_want {
    bool parents;
    char *const *exclude; /* or NULL */
};

struct filter;

enum filter_answer {
    FILTER_SKIP, /* leave out the path and all below it */
    FILTER_LOOK, /* leave out the path itself, but look below it if it is a folder */
    FILTER_TAKE, /* take the path */
};

/* path: below the source, without a slash at either end. A NULL filter takes all. */
enum filter_answer filter_ask(const struct filter *f, const char *path);
void filter_free(struct filter *f);
DEFINE_CLEANUP(struct filter *, filter_free);

/* Fails with the name of an invalid pattern. */
int filter_check(char *const *exclude, struct err *err);
/*
 * Finds the paths of a source (sources.h) and the filter for all of them; *ret_filter is NULL where
 * all is taken. ERR_NOT_FOUND: the source is not a pattern, and the file does not exist.
 */
int filter_find(int root, const char *source, const struct filter_want *want, char ***ret,
                struct filter **ret_filter, struct err *err);

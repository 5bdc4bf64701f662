/*
 * Which files a source of COPY and ADD means: what `--parents` names, without what `--exclude`
 * leaves out. Patterns are those of .dockerignore, and are held against paths below the source; a
 * source that is a file is held against them by its name.
 *
 * `--parents` cuts a source in two at its first "/./": what is in front of it is the folder that
 * paths begin at, what is behind it is taken with the folders on its way. Without that the paths
 * begin at the root.
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
    FILTER_SKIP, /* neither it nor anything in it */
    FILTER_LOOK, /* not it; if it is a folder, perhaps something in it */
    FILTER_TAKE,
};

/* path: below the source, without a slash at either end. Without a filter all is taken. */
enum filter_answer filter_ask(const struct filter *f, const char *path);
void filter_free(struct filter *f);
DEFINE_CLEANUP(struct filter *, filter_free);

/* The error names the pattern that is none. */
int filter_check(char *const *exclude, struct err *err);
/*
 * The paths that a source means (sources.h), and what is taken of each: NULL where it is all.
 * ERR_NOT_FOUND for a source that is no pattern and is not there.
 */
int filter_find(int root, const char *source, const struct filter_want *want, char ***ret,
                struct filter **ret_filter, struct err *err);

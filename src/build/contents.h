/*
 * What a COPY takes, as a stream that is the same for the same files: names in the order of their
 * bytes, kinds, modes, links, contents; neither owners nor times.
 */
#pragma once

#include "base/err.h"
#include "base/tar.h"
#include "build/filter.h"

/* root/path as if it were called `name`, a folder with all in it that the filter takes. */
int contents_of(int root, const char *path, const char *name, const struct filter *filter,
                tar_write_fn write, void *arg, struct err *err);

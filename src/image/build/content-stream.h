/*
 * What a COPY takes, as a stream that is the same for the same files: names in the order of their
 * bytes, kinds, modes, links, digests of the contents; neither owners nor times. So it is the same
 * for a file that was left out of a thin context (proto/digest-context.h).
 */
#pragma once

#include "image/build/filter.h"
#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/tar.h"

/* root/path as if it were called `name`, a folder with all in it that the filter takes. */
int content_stream_write(int root, const char *path, const char *name, const struct filter *filter,
                         tar_write_fn write, void *arg, struct err *err);

/* Digests of those that were left out there, as keys of *set; nothing is read. */
int content_stream_left_out(int root, const char *path, const struct filter *filter, json_t *set,
                            struct err *err);

/*
 * The files of a source as a byte stream for digests, which is the same for the same files: sorted
 * names, kinds, modes, links, and digests of contents, but no owners or times. A file that a
 * digest-only context (proto/digest-context.h) leaves out gives the same bytes.
 */
#pragma once

#include "image/build/filter.h"
#include "lib/base/err.h"
#include "lib/base/json.h"
#include "lib/base/tar.h"

/* Writes root/path under the name `name`; of a folder, all files that the filter takes. */
int content_stream_write(int root, const char *path, const char *name, const struct filter *filter,
                         tar_write_fn write, void *arg, struct err *err);

/*
 * Adds the digests of files that were left out of the context as keys to *set. Reads no contents.
 */
int content_stream_left_out(int root, const char *path, const struct filter *filter, json_t *set,
                            struct err *err);

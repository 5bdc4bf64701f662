/*
 * An OCI layout as a tar stream, file by file: what export and pull write, and import reads.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/tar.h"

struct layout {
    int out;
    struct tar_writer w;
};

/* Puts `oci-layout` there. The struct stays where it is until layout_finish(). */
int layout_begin(struct layout *l, int out, struct err *err);
int layout_text(struct layout *l, const char *path, const char *text, size_t len, struct err *err);
/* A small blob: under its digest. */
int layout_document(struct layout *l, const char *text, size_t len, struct err *err);
/* A large one: the first `size` bytes of a file. */
int layout_blob(struct layout *l, const char *digest, int fd, uint64_t size, struct err *err);
int layout_finish(struct layout *l, struct err *err);

/*
 * Writes an OCI layout as a tar stream, file by file. Export and pull write it, import reads it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/tar.h"

struct oci_layout {
    int out;
    struct tar_writer w;
};

/* Writes the file `oci-layout`. The struct must not move until oci_layout_finish(). */
int oci_layout_begin(struct oci_layout *l, int out, struct err *err);
int oci_layout_text(struct oci_layout *l, const char *path, const char *text, size_t len,
                    struct err *err);
/* Writes a small blob under its digest. */
int oci_layout_document(struct oci_layout *l, const char *text, size_t len, struct err *err);
/* Writes a large blob: the first `size` bytes of fd. */
int oci_layout_blob(struct oci_layout *l, const char *digest, int fd, uint64_t size,
                    struct err *err);
int oci_layout_finish(struct oci_layout *l, struct err *err);

/*
 * Blobs of a repository as files of a folder, named by their digest. An interrupted download is
 * resumed, by this process or a later one. A file is used only when its bytes have the digest.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "image/oci/manifest.h"
#include "image/transfer/repository.h"
#include "lib/base/err.h"

struct blob_fetch {
    struct repository *repository;
    int dir;                        /* the folder */
    const struct oci_descriptor *d; /* the wanted blob */
    _Atomic uint64_t *done;         /* set to the bytes received so far */
    const atomic_bool *stop;        /* set by the caller: give up */
};

/* *ret: the complete file, locked until it is closed. Blocks; retries failed connections. */
int blob_fetch(const struct blob_fetch *b, int *ret, struct err *err);
/* Removes the file of a digest. */
void blob_remove(int dir, const char *digest);
/* Removes downloads that nobody has continued for a week. */
void blob_remove_stale(int dir);

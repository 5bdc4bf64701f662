/*
 * Blobs of a repository as files of a folder, by their digest. What was broken off is gone on with
 * where it stopped, by this process or a later one; a file is used only when all its bytes have the
 * digest.
 */
#pragma once

#include <stdatomic.h>
#include <stdint.h>

#include "image/oci/manifest.h"
#include "image/transfer/repository.h"
#include "lib/base/err.h"

struct blob_fetch {
    struct repository *repository;
    int dir;                    /* the folder */
    const struct oci_descriptor *d; /* what is wanted */
    _Atomic uint64_t *done;     /* counts its bytes as they come */
    const atomic_bool *stop;    /* others have failed, or nobody waits */
};

/* *ret: the whole file, read from its beginning, locked until it is closed. */
int blob_fetch(const struct blob_fetch *b, int *ret, struct err *err);
/* Removes the file of a digest. */
void blob_remove(int dir, const char *digest);
/* Removes what nobody has gone on with for a week. */
void blob_remove_stale(int dir);

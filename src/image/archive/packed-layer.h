/*
 * A layer of the store as a tar file, for an export. A confined child that has the layer's ids
 * packs the folder (image/archive/pack.h). The parent computes the digests and writes the bytes to a
 * file without a name.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "image/archive/confined.h"
#include "image/oci/digest.h"
#include "image/store/images.h"
#include "lib/base/err.h"

struct packed_layer {
    int fd; /* owned: a file with the bytes */
    uint64_t size;
    char digest[DIGEST_MAX]; /* of the bytes */
    /* Digest of the plain tar. It differs from the layer's digest in the store, unless that layer
     * was packed by ripcord before. */
    char diff_id[DIGEST_MAX];
};

#define PACKED_LAYER_INIT                                                                          \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* gzip: compress. The same version of zlib gives the same bytes each time. */
int packed_layer_make(const struct images *s, const struct confined_ids *ids, const char *layer,
                      bool gzip, struct packed_layer *ret, struct err *err);
void packed_layer_done(struct packed_layer *p);

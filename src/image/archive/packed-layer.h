/*
 * A layer's way out of the store: a confined child that has the layer's ids turns its folder into a
 * tar (image/archive/pack.h), and what comes is counted here and put into a file without a name.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "image/archive/confined.h"
#include "image/oci/digest.h"
#include "image/store/images.h"
#include "lib/base/err.h"

struct packed_layer {
    int fd; /* the bytes, from its beginning */
    uint64_t size;
    char digest[DIGEST_MAX];  /* of them */
    char diff_id[DIGEST_MAX]; /* of the plain tar; not what the layer is called in the store, unless
                                 it was packed by us before */
};

#define PACKED_LAYER_INIT                                                                          \
    {                                                                                              \
        .fd = -1                                                                                   \
    }

/* gzip: compressed, the same bytes each time with one version of zlib. */
int packed_layer_make(const struct images *s, const struct confined_ids *ids, const char *layer,
                      bool gzip, struct packed_layer *ret, struct err *err);
void packed_layer_done(struct packed_layer *p);

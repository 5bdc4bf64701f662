/*
 * Imports a layer into the store. One confined child decompresses its bytes, and another unpacks
 * them. The parent passes the bytes from the first to the second and computes the digest, so that
 * neither child can lie about it.
 */
#pragma once

#include <stdint.h>

#include "image/archive/confined.h"
#include "image/archive/decompress.h"
#include "image/archive/unpack.h"
#include "image/oci/digest.h"
#include "image/store/images.h"
#include "lib/base/err.h"

struct layer_import_in {
    struct decompress_range range; /* compressed or not */
    const char *digest;            /* of these bytes; NULL: not known */
    const char *diff_id;           /* of the plain tar; NULL: not known */
    uint64_t max;                  /* bytes of its files; at most UNPACK_BYTES_MAX */
};

struct layer_import_out {
    char diff_id[DIGEST_MAX];
    struct unpack_stats stats;
};

/* Verifies the layer, unpacks it and puts it into the store. 1: it is new; 0: the store has it. */
int layer_import(struct images *s, const struct confined_ids *ids, const struct layer_import_in *in,
                 struct layer_import_out *ret, struct err *err);

/* Decompresses and unpacks into the caller's empty folder; the store stays the same. */
int layer_import_unpack(int dir, const struct confined_ids *ids, const struct layer_import_in *in,
                        struct layer_import_out *ret, struct err *err);

/* Unpacks a plain tar from the current position of `fd`, in one child and without a digest. All
 * files belong to the caller. flags: enum unpack_flags. */
int layer_import_unpack_plain(int dir, int fd, unsigned flags, struct err *err);

/* Writes `in` decompressed to `out`, at most `max` bytes; *digest is the digest of the written
 * bytes. */
int layer_import_decompress(const struct decompress_range *in, int out, uint64_t max,
                            char digest[static DIGEST_MAX], struct err *err);

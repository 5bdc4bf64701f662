/*
 * A layer's way into the store: its bytes are made plain by one confined child and unpacked by
 * another, and what passes between them is counted here, so that neither can say what it is.
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
    const char *digest;            /* of these bytes, or NULL: not known */
    const char *diff_id;           /* of the plain tar, or NULL */
};

struct layer_import_out {
    char diff_id[DIGEST_MAX];
    struct unpack_stats stats;
};

/* Verifies, unpacks and puts it in its place. 1: it is new; 0: the store has it. */
int layer_import(struct images *s, const struct confined_ids *ids, const struct layer_import_in *in,
                 struct layer_import_out *ret, struct err *err);

/* The same into a folder of the caller's, which is empty; nothing is put anywhere. */
int layer_import_unpack(int dir, const struct confined_ids *ids, const struct layer_import_in *in,
                        struct layer_import_out *ret, struct err *err);

/* A plain tar whose digest nobody wants to know, from where `fd` stands, by one child alone; all of
 * it becomes the caller's. flags: enum unpack_flags. */
int layer_import_unpack_plain(int dir, int fd, unsigned flags, struct err *err);

/* `in` made plain, into `out`; *digest is that of what was written. */
int layer_import_decompress(const struct decompress_range *in, int out,
                            char digest[static DIGEST_MAX], struct err *err);

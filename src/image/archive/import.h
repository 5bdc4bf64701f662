/*
 * Imports an archive from a descriptor into the image store. It can be a root file system as tar,
 * an OCI layout as tar, or a `docker save` archive; plain, or compressed by gzip, zstd or xz.
 * Blocking, in a process of its own (image/archive/main.c).
 */
#pragma once

#include "image/archive/confined.h"
#include "image/store/images.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/*
 * max: bytes of the uncompressed archive, and of the files of an image. name: the name of the
 * image. NULL: the names in the archive; a root file system has none and needs a name. platform: as
 * in oci_index_parse_for(); NULL: this machine's.
 * *ret: {"images": [{"id", "names", "layers", "new_layers", "bytes", "dropped"}]}.
 * On failure the store can hold new layers and blobs that no image uses; a collection removes them.
 */
int import_archive(struct images *s, const struct confined_ids *ids, int in, uint64_t max,
                   const char *name, const char *platform, json_t **ret, struct err *err);

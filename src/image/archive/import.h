/*
 * An archive on a descriptor becomes images of the store: a root file system as tar, an OCI layout
 * as tar, a `docker save` archive; plain or compressed by gzip, zstd or xz. Blocking, in a process
 * of its own (image/archive/main.c).
 */
#pragma once

#include "image/archive/confined.h"
#include "image/store/images.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/*
 * name: what the image is to be called, or NULL: what the archive says; a root file system needs
 * one. platform: for another than this machine, or NULL. *ret: {"images": [{"id", "names",
 * "layers", "new_layers", "bytes", "dropped"}]}. On failure the store holds nothing new that
 * counts.
 */
int import_archive(struct images *s, const struct confined_ids *ids, int in, const char *name,
                   const char *platform, json_t **ret, struct err *err);

/*
 * Exports an image of the store as a tar that other tools can import: an OCI layout, on request
 * also with the list that `docker load` reads. Blocking, in a process of its own
 * (image/archive/main.c).
 *
 * The layers are packed again, so the digests of the layers and of the image change. An image that
 * was exported once and imported again keeps its digests.
 */
#pragma once

#include <stdbool.h>

#include "image/archive/confined.h"
#include "image/store/images.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

enum export_form {
    EXPORT_OCI,
    EXPORT_DOCKER, /* with manifest.json: `docker load` of any version */
    EXPORT_PUSH,   /* OCI with compressed layers: for an image registry */
};

/* "oci", "docker" or "push". */
int export_form_parse(const char *name, enum export_form *ret, struct err *err);

/* *ret: {"id", "exported", "layers", "bytes"}; "exported" is the image's id in the archive. */
int export_image(const struct images *s, const struct confined_ids *ids, const char *name,
                 enum export_form form, int out, json_t **ret, struct err *err);

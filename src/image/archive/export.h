/*
 * An image of the store as a tar that other tools take in: an OCI layout, on request with the list
 * that Docker's `load` reads beside it. Blocking, in a process of its own (image/archive/main.c).
 *
 * The layers are packed anew, so their digests, and with them the image's, are not those it came
 * with; an image that was exported once and comes back keeps them.
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
    EXPORT_PUSH,   /* OCI, its layers compressed: what goes to a registry */
};

/* "oci", "docker" or "push". */
int export_form_parse(const char *name, enum export_form *ret, struct err *err);

/* *ret: {"id", "exported", "layers", "bytes"}. */
int export_image(const struct images *s, const struct confined_ids *ids, const char *name,
                 enum export_form form, int out, json_t **ret, struct err *err);

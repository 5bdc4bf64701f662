/*
 * The "config" part of an image's configuration document (OCI image spec), read into the form that
 * Dockerfile instructions change (image/dockerfile/config.h), and written for the new image.
 */
#pragma once

#include "image/dockerfile/config.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/* doc: the whole document. Fields that are missing or have the wrong type stay empty. */
void config_json_read(const json_t *doc, struct dockerfile_config *ret);

/*
 * The whole document of the new image; the caller frees it. The same input gives the same text,
 * because the image's id is its digest. layers: bottom first. created and history may be NULL.
 */
char *config_json_text(const struct dockerfile_config *c, char *const *layers, const char *created,
                       const json_t *history);

/* config_json_read() of a text; for tests. */
int config_json_parse(const char *text, size_t len, struct dockerfile_config *ret, struct err *err);

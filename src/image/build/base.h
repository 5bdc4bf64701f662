/*
 * Images of the store as a Dockerfile sees them, and what a build makes of its configuration.
 */
#pragma once

#include "image/dockerfile/config.h"
#include "image/store/images.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

struct base {
    char id[DIGEST_MAX]; /* "": it is `host` itself */
    char **layers;       /* owned: digests, bottom first; before them IMAGES_HOST_LAYER, if on it */
    char *created;       /* owned, or NULL */
};

#define _cleanup_base_ __attribute__((cleanup(base_done)))
void base_done(struct base *b);

/* What an image is called in the store: as it is written, but that NAME[:TAG]@sha256:… has a name
 * of its own, as TAG may be another by now; new. */
char *base_name(const char *written);

/* Any of the two results may be NULL. `host` is an image of one layer and nothing but a PATH. */
int base_read(const struct images *s, const char *name, struct base *ret, struct config *ret_config,
              struct err *err);

/* The lines of its history (history.h), one for each layer at least; new. */
int base_history(const struct images *s, const struct base *b, json_t **ret, struct err *err);

/* An image's configuration as it is stored: the same text each time. */
char *base_config_text(const struct config *c, char *const *layers, const char *created,
                       const json_t *history);

/* Of a document as text, for tests. */
int base_config_parse(const char *text, size_t len, struct config *ret, struct err *err);

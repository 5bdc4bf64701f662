/*
 * Images of the store that a Dockerfile names in FROM, COPY --from or RUN --mount=from.
 */
#pragma once

#include "image/dockerfile/config.h"
#include "image/store/images.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

struct base_image {
    char id[DIGEST_MAX]; /* "": image `host` itself */
    char **layers;       /* owned: digests, bottom first; IMAGES_HOST_LAYER first if built on it */
    char *created;       /* owned, or NULL */
};

#define _cleanup_base_image_ __attribute__((cleanup(base_image_done)))
void base_image_done(struct base_image *b);

/*
 * The image's name in the store; the caller frees it. It is the written name, except that
 * NAME[:TAG]@sha256:… becomes NAME:sha256-…, because TAG may name another image by now.
 */
char *base_image_name(const char *written);

/*
 * ERR_NOT_FOUND, with a hint, for an image that is not in the store. Both results may be NULL.
 * Image `host` has one layer, and a configuration with only PATH.
 */
int base_image_read(const struct images *s, const char *name, struct base_image *ret,
                    struct dockerfile_config *ret_config, struct err *err);

/* The image's history lines (history.h), at least one for each layer; the caller owns them. */
int base_image_history(const struct images *s, const struct base_image *b, json_t **ret,
                       struct err *err);

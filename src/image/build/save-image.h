/* Puts the result of a build into the store: the image, and the names that lead to it. */
#pragma once

#include "image/store/images.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/* config: the image's configuration document; its digest becomes the id. Saving an image again
 * changes nothing. */
int save_image(struct images *s, const char *config, char id[static DIGEST_MAX], struct err *err);

/* Whether all tags are valid image names; for use before a long build. */
int save_image_check_names(char *const *tags, struct err *err);
/* Lets the tags name the image, and appends them to `names` in their full form. */
int save_image_tag(struct images *s, char *const *tags, const char *id, json_t *names,
                   struct err *err);

/* What a build has come to, into the store: the image, and the names that lead to it. */
#pragma once

#include "image/store/images.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

/* From its configuration, whose digest is its id. One that is there already stays as it is. */
int save_image(struct images *s, const char *config, char id[static DIGEST_MAX], struct err *err);

/* Are they names? */
int save_image_check_names(char *const *tags, struct err *err);
/* *names gets them as they are spelt in the store. */
int save_image_tag(struct images *s, char *const *tags, const char *id, json_t *names,
                   struct err *err);

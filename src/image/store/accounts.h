/* Users of an image: looks them up in its /etc/passwd, through its layers. */
#pragma once

#include <stdbool.h>

#include "image/store/images.h"
#include "lib/base/json.h"

/* record: the record of an image; its layers are in the store. */
bool accounts_have(const struct images *s, const json_t *record, const char *user);
/* The same by number. layers: digests, bottom first. */
bool accounts_have_uid(const struct images *s, char *const *layers, const char *uid);

/* Users of an image: looks them up in its /etc/passwd, through its layers. */
#pragma once

#include <stdbool.h>

#include "image/store/images.h"
#include "lib/base/json.h"

enum account_found {
    ACCOUNT_MISSING,
    ACCOUNT_PRESENT,
    ACCOUNT_UNKNOWN, /* etc/passwd is not a plain file, or cannot be read */
};

/* record: the record of an image; its layers are in the store. */
enum account_found accounts_find(const struct images *s, const json_t *record, const char *user);
/* In a root that is one folder. */
enum account_found accounts_find_in(int root, const char *user);
/* Whether it is certainly there. */
bool accounts_have(const struct images *s, const json_t *record, const char *user);
/* The same by number. layers: digests, bottom first. */
bool accounts_have_uid(const struct images *s, char *const *layers, const char *uid);

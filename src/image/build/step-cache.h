/*
 * What steps have come to: <store>/cache/<key>, one small file each. The key says all that a step
 * depends on, so an entry is never wrong, only of no more use; one whose layer is gone counts as
 * none. The layers are kept by the store's collection as long as the entries are there. Notes, of
 * what is known beside that, lie there too and go with them.
 */
#pragma once

#include <stdbool.h>

#include "image/store/images.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

struct step_cache_entry {
    char layer[DIGEST_MAX]; /* "": the step changed nothing */
    char *created;          /* owned */
};

/* 1: there is one; 0: none. */
int step_cache_get(const struct images *s, const char *key, struct step_cache_entry *ret);
int step_cache_put(struct images *s, const char *key, const struct step_cache_entry *e,
                   struct err *err);

/* Likewise; the document is taken. */
int step_cache_get_note(const struct images *s, const char *key, json_t **ret);
int step_cache_put_note(struct images *s, const char *key, json_t *note, struct err *err);

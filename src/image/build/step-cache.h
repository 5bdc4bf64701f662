/*
 * Results of steps: <store>/cache/<key>, one small file each. The key covers all that a step
 * depends on, so an entry is never wrong, only useless. An entry whose layer is gone does not
 * count. The store's collection keeps layers as long as their entries exist.
 *
 * Notes are other small documents in the same folder, with the same life: what is known about a URL
 * (add-downloads.h).
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

void step_cache_entry_done(struct step_cache_entry *e);

/* 1: found; 0: not found. */
int step_cache_get(const struct images *s, const char *key, struct step_cache_entry *ret);
int step_cache_put(struct images *s, const char *key, const struct step_cache_entry *e,
                   struct err *err);

/* The same for notes. put takes the reference to the document. */
int step_cache_get_note(const struct images *s, const char *key, json_t **ret);
int step_cache_put_note(struct images *s, const char *key, json_t *note, struct err *err);

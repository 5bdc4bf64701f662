/*
 * A hash map from strings to pointers. Keys are copied; values belong to the caller. Keys must be
 * our own ids or validated names: the hash does not resist chosen keys. Not for use across threads.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct map {
    struct map_slot *slots;
    size_t cap;  /* a power of two or 0 */
    size_t used; /* live entries */
    size_t dead; /* tombstones */
};

#define MAP_INIT                                                                                   \
    {                                                                                              \
        0                                                                                          \
    }

void map_done(struct map *m); /* the values stay */
void *map_get(const struct map *m, const char *key);
/* False: the key exists, and nothing changes. value must not be NULL. */
bool map_add(struct map *m, const char *key, void *value);
void *map_remove(struct map *m, const char *key); /* the value, or NULL */

/* for (size_t i = 0; map_next(&m, &i, &key, &value);): the loop may remove the current entry. */
bool map_next(const struct map *m, size_t *iter, const char **ret_key, void **ret_value);

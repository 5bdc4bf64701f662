/*
 * String-keyed hash map to borrowed pointers. Keys are copied; values belong to the caller. Open
 * addressing, SipHash-free: keys are our own ids and validated names, never raw foreign bytes. Not
 * for use across threads.
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
/* False when the key is there already; nothing changes then. value is not NULL. */
bool map_add(struct map *m, const char *key, void *value);
void *map_remove(struct map *m, const char *key); /* the value, or NULL */

/* for (size_t i = 0; map_next(&m, &i, &key, &value);) — removing the current entry meanwhile is
 * fine. */
bool map_next(const struct map *m, size_t *iter, const char **ret_key, void **ret_value);

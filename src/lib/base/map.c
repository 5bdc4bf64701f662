#include "lib/base/map.h"

#include <stdint.h>

#include "lib/base/xalloc.h"

struct map_slot {
    char *key;   /* NULL: never used */
    void *value; /* NULL with a key: removed */
};

static uint64_t map_hash(const char *s)
{
    uint64_t h = 0xcbf29ce484222325; /* FNV-1a, 64 bit */

    for (; *s; s++)
        h = (h ^ (unsigned char)*s) * 0x100000001b3;
    return h;
}

void map_done(struct map *m)
{
    for (size_t i = 0; i < m->cap; i++)
        free(m->slots[i].key);
    free(m->slots);
    *m = (struct map)MAP_INIT;
}

static struct map_slot *map_find(const struct map *m, const char *key)
{
    if (!m->cap)
        return NULL;
    for (size_t i = map_hash(key) & (m->cap - 1);; i = (i + 1) & (m->cap - 1)) {
        struct map_slot *s = &m->slots[i];

        if (!s->key)
            return NULL;
        if (s->value && STREQ(s->key, key))
            return s;
    }
}

void *map_get(const struct map *m, const char *key)
{
    struct map_slot *s = map_find(m, key);

    return s ? s->value : NULL;
}

static void map_insert(struct map *m, char *owned_key, void *value)
{
    size_t i = map_hash(owned_key) & (m->cap - 1);

    while (m->slots[i].key)
        i = (i + 1) & (m->cap - 1);
    m->slots[i] = (struct map_slot){owned_key, value};
    m->used++;
}

/* At most half full, tombstones counted, so that every probe ends soon. */
static void map_make_room(struct map *m)
{
    struct map old = *m;

    if ((m->used + m->dead + 1) * 2 <= m->cap)
        return;
    m->cap = MAX((size_t)16, m->used * 4);
    while (m->cap & (m->cap - 1))
        m->cap += m->cap & -m->cap;
    m->slots = xcalloc(m->cap, sizeof(*m->slots));
    m->used = m->dead = 0;
    for (size_t i = 0; i < old.cap; i++) {
        if (old.slots[i].value)
            map_insert(m, old.slots[i].key, old.slots[i].value);
        else
            free(old.slots[i].key);
    }
    free(old.slots);
}

bool map_add(struct map *m, const char *key, void *value)
{
    if (map_find(m, key))
        return false;
    map_make_room(m);
    map_insert(m, xstrdup(key), value);
    return true;
}

void *map_remove(struct map *m, const char *key)
{
    struct map_slot *s = map_find(m, key);
    void *value;

    if (!s)
        return NULL;
    value = s->value;
    s->value = NULL;
    m->used--;
    m->dead++;
    return value;
}

bool map_next(const struct map *m, size_t *iter, const char **ret_key, void **ret_value)
{
    for (; *iter < m->cap; (*iter)++) {
        struct map_slot *s = &m->slots[*iter];

        if (!s->value)
            continue;
        if (ret_key)
            *ret_key = s->key;
        if (ret_value)
            *ret_value = s->value;
        (*iter)++;
        return true;
    }
    return false;
}

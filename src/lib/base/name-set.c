#include "lib/base/name-set.h"

#include <stdlib.h>
#include <sys/random.h>

#include "lib/base/xalloc.h"

enum { NAME_SET_FIRST = 64 };

void name_set_done(struct name_set *s)
{
    free(s->slots);
    *s = (struct name_set){0};
}

/* A polynomial over the bytes, mixed at the end because its low bits are weak. Never 0. */
static uint64_t name_set_hash(const struct name_set *s, const char *name)
{
    uint64_t h = s->key[0];

    for (const unsigned char *c = (const unsigned char *)name; *c; c++)
        h = (h + *c) * s->key[1];
    h ^= h >> 32;
    h *= s->key[1];
    h ^= h >> 29;
    return h ? h : 1;
}

/* The slot of this hash, or the free one where it belongs. */
static uint64_t *name_set_slot(const struct name_set *s, uint64_t hash)
{
    size_t i = hash & (s->cap - 1);

    while (s->slots[i] && s->slots[i] != hash)
        i = (i + 1) & (s->cap - 1);
    return &s->slots[i];
}

static void name_set_grow(struct name_set *s)
{
    struct name_set bigger = {.cap = s->cap ? 2 * s->cap : NAME_SET_FIRST, .used = s->used};

    bigger.slots = xcalloc(bigger.cap, sizeof(*bigger.slots));
    for (size_t i = 0; i < s->cap; i++)
        if (s->slots[i])
            *name_set_slot(&bigger, s->slots[i]) = s->slots[i];
    free(s->slots);
    s->slots = bigger.slots;
    s->cap = bigger.cap;
}

void name_set_add(struct name_set *s, const char *name)
{
    uint64_t hash, *slot;

    if (!s->cap) {
        (void)!getrandom(s->key, sizeof(s->key), 0); /* cannot fail once the kernel is up */
        s->key[1] |= 1;
    }
    if (2 * s->used >= s->cap)
        name_set_grow(s);
    hash = name_set_hash(s, name);
    slot = name_set_slot(s, hash);
    if (*slot)
        return;
    *slot = hash;
    s->used++;
}

bool name_set_has(const struct name_set *s, const char *name)
{
    return s->cap && *name_set_slot(s, name_set_hash(s, name));
}

#include "daemon/engine/engine-caches.h"

#include <stdlib.h>

#include "lib/base/xalloc.h"

struct engine_cache *engine_caches_add(struct engine_caches *c, enum engine_cache_kind kind,
                                       const char *tool, const char *owner)
{
    struct engine_cache *item;

    c->items = xreallocarray(c->items, c->n + 1, sizeof(*c->items));
    item = &c->items[c->n++];
    *item = (struct engine_cache){.kind = kind, .tool = xstrdup(tool), .owner = xstrdup(owner)};
    return item;
}

void engine_caches_done(struct engine_caches *c)
{
    for (size_t i = 0; i < c->n; i++) {
        free(c->items[i].tool);
        free(c->items[i].owner);
    }
    free(c->items);
    *c = (struct engine_caches){0};
}

#include "daemon/engine/engine-objects.h"

#include <stdlib.h>

#include "daemon/engine/sandbox-request.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

void engine_objects_done(struct engine_objects *l)
{
    for (size_t i = 0; i < l->n; i++) {
        free(l->v[i]->name);
        free(l->v[i]->ref);
        free(l->v[i]->spec);
        free(l->v[i]);
    }
    free(l->v);
    map_done(&l->by_id);
    *l = (struct engine_objects){0};
}

static struct engine_object *engine_objects_append(struct engine_objects *l)
{
    struct engine_object *o = xnew0(struct engine_object);

    if ((l->n & (l->n - 1)) == 0) /* full: the room is a power of two */
        l->v = xreallocarray(l->v, l->n ? 2 * l->n : 1, sizeof(struct engine_object *));
    l->v[l->n++] = o;
    return o;
}

struct engine_object *engine_objects_get(const struct engine_objects *l, const char *id)
{
    return map_get(&l->by_id, id);
}

struct engine_object *engine_objects_add(struct engine_objects *l, const char *id)
{
    struct engine_object *o;

    if (!sandbox_id_is_valid(id))
        return NULL;
    o = engine_objects_get(l, id);
    if (o)
        return o;
    o = engine_objects_append(l);
    snprintf(o->id, sizeof(o->id), "%s", id);
    map_add(&l->by_id, o->id, o);
    return o;
}

struct engine_object *engine_objects_add_legacy(struct engine_objects *l, enum object_kind kind,
                                                const char *name, const char *ref)
{
    struct engine_object *o = engine_objects_append(l);

    o->kind = kind;
    o->name = xstrdup(name);
    o->ref = xstrdup(ref);
    o->whole = true;
    return o;
}

const char *object_kind_name(enum object_kind k)
{
    static const char *const names[] = {"sandbox", "container", "network", "volume"};

    return names[k];
}

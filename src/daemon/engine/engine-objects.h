/*
 * The objects on a backend, also those that the database does not know: one entry for each sandbox,
 * even if only a part of the sandbox exists, and one for each legacy object. The list owns its
 * entries. Any thread.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/map.h"

/* All but OBJECT_SANDBOX are objects of an earlier system ("legacy"). */
enum object_kind { OBJECT_SANDBOX, OBJECT_CONTAINER, OBJECT_NETWORK, OBJECT_VOLUME };

struct engine_object {
    enum object_kind kind;
    char id[33];   /* of the sandbox; "" for legacy */
    char *name;    /* as the object has it; NULL: unknown */
    char *ref;     /* legacy: the backend's own identifier; else NULL */
    char hash[65]; /* config hash read back, "" when unknown */
    char *spec;    /* sandbox_request.spec_text, when it was asked for and was kept; else NULL */
    bool whole;    /* the main part exists, not only leftovers around it */
    bool up;       /* it runs, or a part of a run is left */
    bool kept;     /* the state before a re-creation is still there */
};

struct engine_objects {
    struct engine_object **v; /* owned */
    size_t n;
    struct map by_id; /* the sandboxes */
};

void engine_objects_done(struct engine_objects *l);
/* The sandbox with that id, added when it is new; NULL: not a sandbox id. */
struct engine_object *engine_objects_add(struct engine_objects *l, const char *id);
struct engine_object *engine_objects_get(const struct engine_objects *l, const char *id);
struct engine_object *engine_objects_add_legacy(struct engine_objects *l, enum object_kind kind,
                                                const char *name, const char *ref);
const char *object_kind_name(enum object_kind k);

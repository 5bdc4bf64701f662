/*
 * The plan: pure comparison, nothing is changed here.
 *
 * A sandbox that has changed state since the engine was asked is left out: the list does not know
 * of it yet. A store that was made anew over objects of an older one (the database is lost) holds
 * everything it does not know until somebody says `from_engine`: to take them for leftovers would
 * delete what people have lost the list of, not what they have lost.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/core/reconcile/reconcile-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

struct reconcile_plan {
    struct recon_run *run;
    struct recon_lane *lane;
    struct map sandboxes; /* by id: those of this engine */
    bool held;
};

static struct recon_item *reconcile_plan_add(struct reconcile_plan *p, enum recon_action action,
                                             const char *reason)
{
    struct recon_lane *lane = p->lane;
    struct recon_item *item = xnew0(struct recon_item);

    item->run = p->run;
    item->engine = lane->engine;
    item->action = action;
    item->reason = reason ? xstrdup(reason) : NULL;
    if ((lane->n & (lane->n - 1)) == 0) /* full: the room is a power of two */
        lane->items = xreallocarray(lane->items, lane->n ? 2 * lane->n : 1, sizeof(item));
    lane->items[lane->n++] = item;
    return item;
}

static struct recon_item *reconcile_plan_add_object(struct reconcile_plan *p,
                                                    const struct engine_object *o,
                                                    enum recon_action action, const char *reason)
{
    struct recon_item *item = reconcile_plan_add(p, action, reason);

    item->kind = o->kind;
    memcpy(item->id, o->id, sizeof(item->id));
    memcpy(item->hash, o->hash, sizeof(item->hash));
    item->name = o->name ? xstrdup(o->name) : NULL;
    item->ref = o->ref ? xstrdup(o->ref) : NULL;
    item->spec = o->spec ? xstrdup(o->spec) : NULL;
    return item;
}

static struct recon_item *reconcile_plan_add_sandbox(struct reconcile_plan *p,
                                                     const struct sandbox *sb,
                                                     enum recon_action action, const char *reason)
{
    struct recon_item *item = reconcile_plan_add(p, action, reason);

    snprintf(item->id, sizeof(item->id), "%s", sb->id);
    item->name = xstrdup(sb->name);
    return item;
}

static void reconcile_plan_settle(struct recon_item *item, enum recon_result result)
{
    item->result = result;
}

/* ---- what the store does not know ---- */

/* A throw-away sandbox has the name of its id, and nobody who would want it back. */
static bool reconcile_plan_is_throw_away(const struct engine_object *o)
{
    return !o->name || !*o->name || strncmp(o->name, "run-", 4) == 0;
}

static void reconcile_plan_unknown(struct reconcile_plan *p, const struct engine_object *o)
{
    const struct manager *m = p->run->m;

    if (strv_contains(recovery_unread(m->recovery), o->id)) {
        reconcile_plan_settle(
            reconcile_plan_add_object(p, o, RECON_ADOPT,
                                      "its row in the store cannot be read; left unchanged"),
            RECON_DEFERRED);
    } else if (p->run->options.from_engine && !reconcile_plan_is_throw_away(o)) {
        reconcile_plan_add_object(p, o, RECON_ADOPT, "taken back from the engine")->adopts = true;
    } else if (p->held && !p->run->options.from_engine) {
        struct recon_item *item =
            reconcile_plan_add_object(p, o, RECON_ADOPT, "not in the store, which is new");

        item->hint = xstrdup("Run 'ripcord reconcile --from-engine' to take it back.");
        reconcile_plan_settle(item, RECON_DEFERRED);
    } else {
        reconcile_plan_add_object(p, o, RECON_REMOVE, "not in the store");
    }
}

/* ---- what it knows ---- */

/* Whether its row has the hash that this version gives to its spec: asked once in our life. */
static bool reconcile_plan_has_right_hash(struct sandbox *sb)
{
    char now[SPEC_HASH_LEN + 1];

    if (sb->hash_checked)
        return true;
    spec_hash(&sb->spec, sb->engine->ops->name, now);
    sb->hash_checked = STREQ(sb->hash, now);
    return sb->hash_checked;
}

static bool reconcile_plan_is_stale(struct sandbox *sb, const struct engine_object *o)
{
    if (sb->state != SANDBOX_RUNNING && sb->state != SANDBOX_STOPPED)
        return false; /* a failed one has a reason that must be read first */
    return !reconcile_plan_has_right_hash(sb) ||
           (o->whole && *o->hash && !STREQ(o->hash, sb->hash));
}

/* Nothing is to be added to what its state says. */
static bool reconcile_plan_is_marked(const struct sandbox *sb)
{
    return sb->state == SANDBOX_FAILED ||
           (sb->reason && strncmp(sb->reason, SANDBOX_GONE, strlen(SANDBOX_GONE)) == 0);
}

static void reconcile_plan_known(struct reconcile_plan *p, struct sandbox *sb,
                                 const struct engine_object *o)
{
    if (sb->ephemeral || sb->since >= p->lane->listed_at)
        reconcile_plan_settle(reconcile_plan_add_sandbox(p, sb, RECON_ADOPT, NULL), RECON_DONE);
    else if (reconcile_plan_is_stale(sb, o))
        reconcile_plan_add_sandbox(p, sb, RECON_RECREATE, "its configuration is out of date");
    else if (sb->ops) /* what it comes to is not known yet */
        reconcile_plan_settle(reconcile_plan_add_sandbox(p, sb, RECON_ADOPT, NULL), RECON_DONE);
    else if (!o->whole && !reconcile_plan_is_marked(sb) && (!sb->conn || sb->engine->ops->look))
        reconcile_plan_add_sandbox(p, sb, RECON_MARK, SANDBOX_GONE);
    else if (o->up && !sb->conn)
        reconcile_plan_add_sandbox(p, sb, RECON_CLEAN, "leftovers of a run have no supervisor");
    else
        reconcile_plan_settle(reconcile_plan_add_sandbox(p, sb, RECON_ADOPT, NULL), RECON_DONE);
}

/* The engine has nothing of it. With a living supervisor the engine is asked again
 * (daemon/core/sandbox/engine-watch.c). */
static void reconcile_plan_missing(struct reconcile_plan *p, struct sandbox *sb)
{
    if (sb->ops || sb->ephemeral || sb->since >= p->lane->listed_at || reconcile_plan_is_marked(sb))
        reconcile_plan_settle(reconcile_plan_add_sandbox(p, sb, RECON_ADOPT, sb->reason),
                              RECON_DONE);
    else
        reconcile_plan_add_sandbox(p, sb, RECON_MARK, SANDBOX_GONE);
}

static void reconcile_plan_object(struct reconcile_plan *p, const struct engine_object *o)
{
    struct sandbox *sb = o->kind == OBJECT_SANDBOX ? map_get(&p->sandboxes, o->id) : NULL;

    if (o->kind != OBJECT_SANDBOX)
        reconcile_plan_add_object(p, o, RECON_REMOVE, "legacy");
    else if (!sb)
        reconcile_plan_unknown(p, o);
    else
        reconcile_plan_known(p, sb, o);
}

void recon_plan(struct recon_run *run, struct recon_lane *lane, const struct engine_objects *list)
{
    struct reconcile_plan p = {.run = run, .lane = lane};
    struct sandbox *sb;

    p.held = store_is_held(run->m->store, lane->engine->ops->name);
    for (size_t i = 0; manager_next(run->m, &i, &sb);)
        if (sb->engine == lane->engine)
            map_add(&p.sandboxes, sb->id, sb);
    for (size_t i = 0; i < list->n; i++)
        reconcile_plan_object(&p, list->v[i]);
    for (size_t i = 0; manager_next(run->m, &i, &sb);)
        if (sb->engine == lane->engine && !engine_objects_get(list, sb->id))
            reconcile_plan_missing(&p, sb);
    map_done(&p.sandboxes);
}

bool recon_is_settled(const struct recon_lane *lane)
{
    for (size_t i = 0; i < lane->n; i++) {
        const struct recon_item *item = lane->items[i];

        if (item->kind == OBJECT_SANDBOX && item->action == RECON_ADOPT &&
            item->result != RECON_DONE)
            return false;
    }
    return true;
}

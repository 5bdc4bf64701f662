/*
 * The decision table of reconcile: what becomes of each sandbox and object. Pure comparison of the
 * store with an engine's list; nothing is changed here.
 *
 * A sandbox that changed its state after the engine was asked is left alone: the list is older than
 * the change. A new store over objects of an older one (the database was lost) keeps every object
 * without a row until a run with `from_engine`: removing them as leftovers would delete sandboxes
 * whose files are still wanted.
 */
#include <stdlib.h>
#include <string.h>

#include "daemon/core/reconcile/reconcile-internal.h"
#include "daemon/core/sandbox/spec.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum reconcile_case {
    /* objects without a row in the store */
    CASE_LEGACY,         /* `legacy.*` in ripcord.yaml names it */
    CASE_UNREADABLE_ROW, /* there is a row, but this version cannot read it */
    CASE_TAKE_BACK,      /* a named sandbox, and the run has `from_engine` */
    CASE_STORE_IS_NEW,   /* the store is younger than the objects of this engine */
    CASE_NO_ROW,         /* all others */
    /* sandboxes of the store */
    CASE_CHANGING,  /* ephemeral, newer than the list, or with an operation in its queue */
    CASE_STALE,     /* its configuration hash differs from the one that this version computes */
    CASE_GONE,      /* the engine does not have it, or has only leftovers around it */
    CASE_LEFTOVERS, /* it is down, but parts of a run are left */
    CASE_KEPT,      /* the state before a re-creation is still there */
    CASE_FAILED,    /* its last start or removal failed, and only a request tries again */
    CASE_CORRECT,   /* all others */
};

/*
 * RECON_WAITING: the run carries out the action. RECON_DONE and RECON_DEFERRED: nothing is to be
 * done, the decision itself is the result.
 */
/* clang-format off */
static const struct {
    enum recon_action action;
    enum recon_result result;
    const char *reason, *hint; /* NULL: none */
} decisions[] = {
    [CASE_LEGACY]         = {RECON_REMOVE,   RECON_WAITING,  "legacy", NULL},
    [CASE_UNREADABLE_ROW] = {RECON_ADOPT,    RECON_DEFERRED,
                             "its row in the store cannot be read; left unchanged", NULL},
    [CASE_TAKE_BACK]      = {RECON_ADOPT,    RECON_WAITING,  "taken back from the engine", NULL},
    [CASE_STORE_IS_NEW]   = {RECON_ADOPT,    RECON_DEFERRED, "not in the store, which is new",
                             "Run 'ripcord reconcile --from-engine' to take it back."},
    [CASE_NO_ROW]         = {RECON_REMOVE,   RECON_WAITING,  "not in the store", NULL},
    [CASE_CHANGING]       = {RECON_ADOPT,    RECON_DONE,     NULL, NULL},
    [CASE_STALE]          = {RECON_RECREATE, RECON_WAITING,
                             "its configuration is out of date", NULL},
    [CASE_GONE]           = {RECON_MARK,     RECON_WAITING,  SANDBOX_GONE, NULL},
    [CASE_LEFTOVERS]      = {RECON_CLEAN,    RECON_WAITING,
                             "leftovers of a run have no supervisor", NULL},
    [CASE_KEPT]           = {RECON_CLEAN,    RECON_WAITING,
                             "its state from before a re-creation is still there", NULL},
    [CASE_FAILED]         = {RECON_ADOPT,    RECON_FAILED,   NULL,
                             "Correct the reason, then run 'ripcord up' or 'ripcord rm'."},
    [CASE_CORRECT]        = {RECON_ADOPT,    RECON_DONE,     NULL, NULL},
};
/* clang-format on */

struct reconcile_plan {
    struct recon_run *run;
    struct recon_lane *lane;
    struct map sandboxes; /* by id: those of this engine */
    bool store_is_new;    /* for this engine */
};

/* ---- which case an object without a row is ---- */

/* A throw-away sandbox is named after its id, and nobody wants it back. */
static bool reconcile_plan_is_throw_away(const struct engine_object *o)
{
    return !o->name || !*o->name || strncmp(o->name, "run-", 4) == 0;
}

static enum reconcile_case reconcile_plan_case_of_object(const struct reconcile_plan *p,
                                                         const struct engine_object *o)
{
    bool from_engine = p->run->options.from_engine;

    if (o->kind != OBJECT_SANDBOX)
        return CASE_LEGACY;
    if (strv_contains(recovery_unread(p->run->m->recovery), o->id))
        return CASE_UNREADABLE_ROW;
    if (from_engine)
        return reconcile_plan_is_throw_away(o) ? CASE_NO_ROW : CASE_TAKE_BACK;
    return p->store_is_new ? CASE_STORE_IS_NEW : CASE_NO_ROW;
}

/* ---- which case a sandbox of the store is ---- */

/* Compares the row's hash with the hash that this version computes. Computed once per daemon. */
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
        return false; /* the user must be able to read why it failed */
    return !reconcile_plan_has_right_hash(sb) ||
           (o->whole && *o->hash && !STREQ(o->hash, sb->hash));
}

/* Its state already says why it is not there. */
static bool reconcile_plan_is_marked(const struct sandbox *sb)
{
    return sb->state == SANDBOX_FAILED ||
           (sb->reason && strncmp(sb->reason, SANDBOX_GONE, strlen(SANDBOX_GONE)) == 0);
}

/* o NULL: the engine has no object of this sandbox. */
static enum reconcile_case reconcile_plan_case_of_sandbox(const struct reconcile_plan *p,
                                                          struct sandbox *sb,
                                                          const struct engine_object *o)
{
    if (sb->ephemeral || sb->since >= p->lane->listed_at)
        return CASE_CHANGING;
    if (o && reconcile_plan_is_stale(sb, o))
        return CASE_STALE;
    if (sb->ops)
        return CASE_CHANGING;
    if (o && o->kept)
        return CASE_KEPT;
    if (!o && sb->state != SANDBOX_FAILED)
        return reconcile_plan_is_marked(sb) ? CASE_CORRECT : CASE_GONE;
    if (!o)
        return CASE_FAILED;
    /* With a live supervisor the engine is asked once more (daemon/core/sandbox/engine-watch.c). */
    if (!o->whole && !reconcile_plan_is_marked(sb) && (!sb->conn || sb->engine->ops->look))
        return CASE_GONE;
    if (o->up && !sb->conn)
        return CASE_LEFTOVERS;
    return sb->state == SANDBOX_FAILED ? CASE_FAILED : CASE_CORRECT;
}

/* ---- the items ---- */

static struct recon_item *reconcile_plan_add(struct reconcile_plan *p, enum reconcile_case c)
{
    struct recon_lane *lane = p->lane;
    struct recon_item *item = xnew0(struct recon_item);

    item->run = p->run;
    item->engine = lane->engine;
    item->action = decisions[c].action;
    item->result = decisions[c].result;
    item->adopts = c == CASE_TAKE_BACK;
    item->reason = decisions[c].reason ? xstrdup(decisions[c].reason) : NULL;
    item->hint = decisions[c].hint ? xstrdup(decisions[c].hint) : NULL;
    if ((lane->n & (lane->n - 1)) == 0) /* full: the room is a power of two */
        lane->items = xreallocarray(lane->items, lane->n ? 2 * lane->n : 1, sizeof(item));
    lane->items[lane->n++] = item;
    return item;
}

static void reconcile_plan_add_object(struct reconcile_plan *p, const struct engine_object *o)
{
    struct recon_item *item = reconcile_plan_add(p, reconcile_plan_case_of_object(p, o));

    item->kind = o->kind;
    memcpy(item->id, o->id, sizeof(item->id));
    memcpy(item->hash, o->hash, sizeof(item->hash));
    item->name = o->name ? xstrdup(o->name) : NULL;
    item->ref = o->ref ? xstrdup(o->ref) : NULL;
    item->spec = o->spec ? xstrdup(o->spec) : NULL;
}

static void reconcile_plan_add_sandbox(struct reconcile_plan *p, struct sandbox *sb,
                                       const struct engine_object *o)
{
    struct recon_item *item = reconcile_plan_add(p, reconcile_plan_case_of_sandbox(p, sb, o));

    snprintf(item->id, sizeof(item->id), "%s", sb->id);
    item->name = xstrdup(sb->name);
    item->has_row = true;
    item->kept = o && o->kept;
    if ((!o || sb->state == SANDBOX_FAILED) && !item->reason && sb->reason)
        item->reason = xstrdup(sb->reason);
}

void recon_plan(struct recon_run *run, struct recon_lane *lane, const struct engine_objects *list)
{
    struct reconcile_plan p = {.run = run, .lane = lane};
    struct sandbox *sb;

    p.store_is_new = store_is_held(run->m->store, lane->engine->ops->name);
    for (size_t i = 0; manager_next(run->m, &i, &sb);)
        if (sb->engine == lane->engine)
            map_add(&p.sandboxes, sb->id, sb);
    for (size_t i = 0; i < list->n; i++) {
        const struct engine_object *o = list->v[i];

        sb = o->kind == OBJECT_SANDBOX ? map_get(&p.sandboxes, o->id) : NULL;
        if (sb)
            reconcile_plan_add_sandbox(&p, sb, o);
        else
            reconcile_plan_add_object(&p, o);
    }
    for (size_t i = 0; manager_next(run->m, &i, &sb);)
        if (sb->engine == lane->engine && !engine_objects_get(list, sb->id))
            reconcile_plan_add_sandbox(&p, sb, NULL);
    map_done(&p.sandboxes);
}

bool recon_is_settled(const struct recon_lane *lane)
{
    for (size_t i = 0; i < lane->n; i++) {
        const struct recon_item *item = lane->items[i];

        if (item->kind == OBJECT_SANDBOX && item->action == RECON_ADOPT && !item->has_row &&
            item->result != RECON_DONE)
            return false;
    }
    return true;
}

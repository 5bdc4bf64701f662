/*
 * The registry counts for as long as it runs and is told to forget a sandbox when that goes: the
 * second question is on its way before, as both travel on one line in order.
 */
#include "daemon/api/package-counts.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/packages/packages-proxy.h"
#include "lib/base/xalloc.h"

struct tally {
    struct keeper *k;
    char *id;
    json_t *before, *after; /* owned; NULL: nothing counted */
    bool failed;            /* a question had no answer */
    bool stopped, freed;
    unsigned pending;
    tally_fn done;
    void *arg;
};

json_t *tally_counters(const char *stats, const char *sandbox_id)
{
    _cleanup_json_ json_t *doc = NULL;

    if (!stats || json_parse("the registry's answer", stats, strlen(stats), &doc, NULL) < 0)
        return NULL;
    return json_incref(json_object_get(json_object_get(doc, "sandboxes"), sandbox_id));
}

static void destroy(struct tally *t)
{
    json_decref(t->before);
    json_decref(t->after);
    free(t->id);
    free(t);
}

void tally_free(struct tally *t)
{
    if (!t)
        return;
    t->freed = true;
    if (!t->pending)
        destroy(t);
}

/* A registry that was started again counts from nothing: all of it is of our time then. */
static void subtract(json_t *from, const json_t *less)
{
    const char *key;
    json_t *v;

    if (json_integer_value(json_object_get(less, "requests")) >
        json_integer_value(json_object_get(from, "requests")))
        return;
    json_object_foreach (from, key, v)
        json_integer_set(v, json_integer_value(v) - json_integer_value(json_object_get(less, key)));
}

static void tell(struct tally *t)
{
    _cleanup_json_ json_t *sum = t->after ? json_deep_copy(t->after) : json_object();
    const char *key;
    json_t *v;

    json_object_foreach (sum, key, v)
        subtract(v, json_object_get(t->before, key));
    t->done(t->arg, t->failed ? NULL : sum);
}

static void settle(struct tally *t)
{
    if (--t->pending)
        return;
    if (t->freed)
        destroy(t);
    else if (t->stopped)
        tell(t);
}

static void on_before(void *arg, const struct err *err, const char *stats)
{
    struct tally *t = arg;

    t->failed |= err != NULL;
    t->before = tally_counters(stats, t->id);
    settle(t);
}

static void on_after(void *arg, const struct err *err, const char *stats)
{
    struct tally *t = arg;

    t->failed |= err != NULL;
    t->after = tally_counters(stats, t->id);
    settle(t);
}

static void ask(struct tally *t, keeper_fn fn)
{
    t->pending++;
    keeper_ask(t->k, &(struct keeper_ask){.what = KEEPER_STATS}, fn, t);
}

struct tally *tally_new(struct keeper *k, const char *sandbox_id)
{
    struct tally *t = xnew0(struct tally);

    t->k = k;
    t->id = xstrdup(sandbox_id);
    if (keeper_serves(k, sandbox_id)) /* else it has not asked for anything yet */
        ask(t, on_before);
    return t;
}

bool tally_stop(struct tally *t, tally_fn done, void *arg)
{
    if (!keeper_serves(t->k, t->id))
        return false;
    t->stopped = true;
    t->done = done;
    t->arg = arg;
    ask(t, on_after);
    return true;
}

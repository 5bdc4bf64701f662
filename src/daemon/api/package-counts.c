/*
 * The result is the difference of two STATS documents. The package cache drops the counters of a
 * sandbox when that is removed. The second request is sent before the removal, and the connection
 * keeps the order, so it still finds them.
 */
#include "daemon/api/package-counts.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/packages/packages-proxy.h"
#include "lib/base/xalloc.h"

struct package_counts {
    struct packages_proxy *k;
    char *id;
    json_t *before, *after; /* owned; NULL: no counters */
    bool failed;            /* a request failed */
    bool stopped, freed;
    unsigned pending;
    package_counts_fn done;
    void *arg;
};

json_t *package_counts_counters(const char *stats, const char *sandbox_id)
{
    _cleanup_json_ json_t *doc = NULL;

    if (!stats || json_parse("answer of the package cache", stats, strlen(stats), &doc, NULL) < 0)
        return NULL;
    return json_incref(json_object_get(json_object_get(doc, "sandboxes"), sandbox_id));
}

static void package_counts_destroy(struct package_counts *t)
{
    json_decref(t->before);
    json_decref(t->after);
    free(t->id);
    free(t);
}

void package_counts_free(struct package_counts *t)
{
    if (!t)
        return;
    t->freed = true;
    if (!t->pending)
        package_counts_destroy(t);
}

/* A package cache that was restarted counts from zero: then everything belongs to this sandbox's
 * time. */
static void package_counts_subtract(json_t *from, const json_t *less)
{
    const char *key;
    json_t *v;

    if (json_integer_value(json_object_get(less, "requests")) >
        json_integer_value(json_object_get(from, "requests")))
        return;
    json_object_foreach (from, key, v)
        json_integer_set(v, json_integer_value(v) - json_integer_value(json_object_get(less, key)));
}

static void package_counts_report(struct package_counts *t)
{
    _cleanup_json_ json_t *sum = t->after ? json_deep_copy(t->after) : json_object();
    const char *key;
    json_t *v;

    json_object_foreach (sum, key, v)
        package_counts_subtract(v, json_object_get(t->before, key));
    t->done(t->arg, t->failed ? NULL : sum);
}

static void package_counts_settle(struct package_counts *t)
{
    if (--t->pending)
        return;
    if (t->freed)
        package_counts_destroy(t);
    else if (t->stopped)
        package_counts_report(t);
}

static void package_counts_on_before(void *arg, const struct err *err, const char *stats)
{
    struct package_counts *t = arg;

    t->failed |= err != NULL;
    t->before = package_counts_counters(stats, t->id);
    package_counts_settle(t);
}

static void package_counts_on_after(void *arg, const struct err *err, const char *stats)
{
    struct package_counts *t = arg;

    t->failed |= err != NULL;
    t->after = package_counts_counters(stats, t->id);
    package_counts_settle(t);
}

static void package_counts_ask(struct package_counts *t, packages_proxy_fn fn)
{
    t->pending++;
    packages_proxy_ask(t->k, &(struct packages_proxy_ask){.what = PACKAGES_PROXY_STATS}, fn, t);
}

struct package_counts *package_counts_new(struct packages_proxy *k, const char *sandbox_id)
{
    struct package_counts *t = xnew0(struct package_counts);

    t->k = k;
    t->id = xstrdup(sandbox_id);
    if (packages_proxy_serves(k, sandbox_id)) /* else it has requested nothing yet */
        package_counts_ask(t, package_counts_on_before);
    return t;
}

bool package_counts_stop(struct package_counts *t, package_counts_fn done, void *arg)
{
    if (!packages_proxy_serves(t->k, t->id))
        return false;
    t->stopped = true;
    t->done = done;
    t->arg = arg;
    package_counts_ask(t, package_counts_on_after);
    return true;
}

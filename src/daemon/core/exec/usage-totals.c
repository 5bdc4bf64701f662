#include "daemon/core/exec/usage-totals.h"

#include <stdlib.h>
#include <string.h>

#include "daemon/core/exec/exec.h"
#include "daemon/core/sandbox/sandbox.h"
#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/store/store.h"

#define SCOPE_ALL "all"
#define SCOPE_SANDBOX "sandbox"
#define SCOPE_LABEL "label"

/* Users choose labels freely, perhaps a new one for each run. */
enum { LABELS_MAX = 2000 };

struct usage_sum {
    char *key;         /* owned: "scope:name" */
    const char *scope; /* static */
    const char *name;  /* points into key */
    struct store_total add;
};

static void usage_totals_pending_free(struct usage_sum *s)
{
    free(s->key);
    free(s);
}

void usage_totals_open(struct usage_totals *t, struct store *store)
{
    *t = (struct usage_totals){.store = store};
}

void usage_totals_close(struct usage_totals *t)
{
    usage_totals_written(t);
    map_done(&t->pending);
}

/* ---- adding ---- */

static struct store_total usage_totals_used_by(const struct end_record *e)
{
    return (struct store_total){
        .execs = 1,
        .failed = end_record_status(e) != 0,
        .wall = e->wall_usec,
        .cpu = e->cpu_usec,
        .memory_peak = e->memory_peak,
        .io_read = e->io_read,
        .io_write = e->io_write,
        .output = e->stdout_bytes + e->stderr_bytes,
    };
}

static struct usage_sum *usage_totals_pending_get(struct usage_totals *t, const char *scope,
                                                  const char *name)
{
    _cleanup_free_ char *key = xasprintf("%s:%s", scope, name);
    struct usage_sum *s = map_get(&t->pending, key);

    if (s)
        return s;
    s = xnew0(struct usage_sum);
    s->scope = scope;
    s->key = TAKE_PTR(key);
    s->name = s->key + strlen(scope) + 1;
    map_add(&t->pending, s->key, s);
    return s;
}

static void usage_totals_add_to(struct usage_totals *t, const char *scope, const char *name,
                                const struct store_total *more)
{
    struct store_total *a = &usage_totals_pending_get(t, scope, name)->add;

    a->execs += more->execs;
    a->failed += more->failed;
    a->wall += more->wall;
    a->cpu += more->cpu;
    a->memory_peak = MAX(a->memory_peak, more->memory_peak);
    a->io_read += more->io_read;
    a->io_write += more->io_write;
    a->output += more->output;
    a->updated_at = time_wall();
}

void usage_totals_add(struct usage_totals *t, const struct sandbox *sb, const struct exec *x)
{
    const struct store_total used = usage_totals_used_by(&x->end);

    usage_totals_add_to(t, SCOPE_ALL, "", &used);
    if (x->stored && !sb->ephemeral) /* others have no receipt */
        usage_totals_add_to(t, SCOPE_SANDBOX, sb->id, &used);
    for (char **l = sb->spec.labels; l && *l; l++)
        usage_totals_add_to(t, SCOPE_LABEL, *l, &used);
}

/* ---- writing ---- */

bool usage_totals_is_pending(const struct usage_totals *t)
{
    return t->pending.used > 0;
}

int usage_totals_write(struct usage_totals *t, struct err *err)
{
    void *value;

    for (size_t i = 0; map_next(&t->pending, &i, NULL, &value);) {
        const struct usage_sum *s = value;
        struct store_total row = s->add;
        int r;

        row.scope = s->scope;
        row.name = s->name;
        t->labels_new += STREQ(s->scope, SCOPE_LABEL);
        r = store_total_add(t->store, &row, err);
        if (r < 0)
            return r;
    }
    if (t->labels_new < LABELS_MAX / 8)
        return 0;
    t->labels_new = 0;
    return store_total_trim(t->store, SCOPE_LABEL, LABELS_MAX, err);
}

void usage_totals_written(struct usage_totals *t)
{
    void *value;

    for (size_t i = 0; map_next(&t->pending, &i, NULL, &value);) {
        struct usage_sum *s = value;

        map_remove(&t->pending, s->key);
        usage_totals_pending_free(s);
    }
}

void usage_totals_forget(struct usage_totals *t, const char *sandbox_id)
{
    _cleanup_free_ char *key = xasprintf(SCOPE_SANDBOX ":%s", sandbox_id);
    struct usage_sum *s = map_remove(&t->pending, key);

    if (s)
        usage_totals_pending_free(s);
    store_total_delete(t->store, SCOPE_SANDBOX, sandbox_id, NULL);
}

/* ---- reading ---- */

static json_t *usage_totals_to_json(const struct store_total *t)
{
    return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "execs", (json_int_t)t->execs,
                     "failed", (json_int_t)t->failed, "wall_ms",
                     (json_int_t)(t->wall / USEC_PER_MSEC), "cpu_ms",
                     (json_int_t)(t->cpu / USEC_PER_MSEC), "memory_peak",
                     (json_int_t)t->memory_peak, "io_read", (json_int_t)t->io_read, "io_write",
                     (json_int_t)t->io_write, "output_bytes", (json_int_t)t->output);
}

static void usage_totals_collect(void *arg, const struct store_total *row)
{
    json_object_set_new(arg, row->name, usage_totals_to_json(row));
}

/* {"name":…} with one total, or with all of a scope (name NULL). */
static int usage_totals_read_scope(struct usage_totals *t, const char *scope, const char *name,
                                   json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *o = json_object();
    int r = store_total_each(t->store, scope, name, usage_totals_collect, o, err);

    if (r < 0)
        return r;
    *ret = TAKE_PTR(o);
    return 0;
}

static int usage_totals_read_one(struct usage_totals *t, const char *scope, const char *name,
                                 json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *o = NULL;
    json_t *found;
    int r = usage_totals_read_scope(t, scope, name, &o, err);

    if (r < 0)
        return r;
    found = json_object_get(o, name);
    *ret = found ? json_incref(found) : usage_totals_to_json(&(struct store_total){0});
    return 0;
}

int usage_totals_of(struct usage_totals *t, const char *sandbox_id, json_t **ret, struct err *err)
{
    return usage_totals_read_one(t, SCOPE_SANDBOX, sandbox_id, ret, err);
}

int usage_totals_all(struct usage_totals *t, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *all = NULL, *labels = NULL;
    int r = usage_totals_read_one(t, SCOPE_ALL, "", &all, err);

    if (r < 0)
        return r;
    r = usage_totals_read_scope(t, SCOPE_LABEL, NULL, &labels, err);
    if (r < 0)
        return r;
    *ret = json_pack("{s:O, s:O}", "all", all, "labels", labels);
    return 0;
}

#include "daemon/api/exec-counts.h"

#include "daemon/api/package-counts.h"
#include "daemon/core/exec/exec.h"
#include "daemon/core/sandbox/manager.h"

static void exec_counts_on_result(void *arg, json_t *packages)
{
    struct exec_counts *e = arg;

    e->pending = false;
    e->packages = json_incref(packages);
    e->done(e->arg);
}

/* Begins when the sandbox has an id: until then it has fetched nothing. Stops at the end of the
 * command, because the counters of a `run` are dropped right after it. */
void exec_counts_update(struct exec_counts *e, struct manager *m, const struct exec *x)
{
    struct packages_proxy *proxy = manager_settings(m)->packages;

    if (!e->wanted || !proxy)
        return;
    if (!e->counts && *x->sandbox_id)
        e->counts = package_counts_new(proxy, x->sandbox_id);
    if (!e->counts || e->stopped || x->state != EXEC_ENDED)
        return;
    e->stopped = true;
    e->pending = package_counts_stop(e->counts, exec_counts_on_result, e);
}

bool exec_counts_pending(const struct exec_counts *e)
{
    return e->pending;
}

void exec_counts_add(const struct exec_counts *e, json_t *end)
{
    if (e->packages)
        json_object_set(end, "packages", e->packages);
}

void exec_counts_done(struct exec_counts *e)
{
    package_counts_free(e->counts);
    json_decref(e->packages);
}

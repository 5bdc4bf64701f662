#include "daemon/core/caches/mount-caches.h"

#include <stdlib.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/engine/engine-images.h"
#include "daemon/engine/engine.h"
#include "lib/base/xalloc.h"

struct cache_mount_call {
    struct manager *m;
    engine_json_fn done;
    void *arg;
};

/* The engine that keeps cache mounts; NULL: this daemon has none. */
static struct engine *mount_caches_engine(const struct manager *m)
{
    for (size_t i = 0; i < m->config.n_engines; i++)
        if (m->config.engines[i]->ops->cache_mounts)
            return m->config.engines[i];
    return NULL;
}

static void mount_caches_answered(void *arg, const struct err *err, const char *json)
{
    struct cache_mount_call *c = arg;

    c->m->background_calls--;
    c->done(c->arg, err, json);
    free(c);
}

static int mount_caches_ask(struct manager *m, const struct cache_mount_op *req,
                            engine_json_fn done, void *arg, struct err *err)
{
    struct engine *e = mount_caches_engine(m);
    struct cache_mount_call *c;

    if (!e)
        return err_set(err, ERR_UNSUPPORTED, "no engine of this daemon keeps cache mounts");
    if (m->closing)
        return err_set(err, ERR_CONFLICT, "the daemon is shutting down");
    c = xnew0(struct cache_mount_call);
    *c = (struct cache_mount_call){.m = m, .done = done, .arg = arg};
    m->background_calls++;
    engine_cache_mounts(e, req, mount_caches_answered, c);
    return 0;
}

int manager_mounts(struct manager *m, engine_json_fn done, void *arg, struct err *err)
{
    const struct cache_mount_op req = {.verb = CACHE_MOUNT_LIST};
    const struct engine *e = mount_caches_engine(m);
    int r;

    if (!e || !manager_asks_engine(m, e))
        return 0;
    r = mount_caches_ask(m, &req, done, arg, err);
    return r < 0 ? r : 1;
}

int manager_mount_remove(struct manager *m, char *id, engine_json_fn done, void *arg,
                         struct err *err)
{
    const struct cache_mount_op req = {.verb = CACHE_MOUNT_REMOVE, .remove.id = id};

    return mount_caches_ask(m, &req, done, arg, err);
}

int manager_mounts_trim(struct manager *m, const uint64_t *keep, uint64_t unused,
                        engine_json_fn done, void *arg, struct err *err)
{
    const struct cache_mount_op req = {
        .verb = CACHE_MOUNT_TRIM,
        .trim = {.keep = keep ? *keep : m->config.mounts_budget, .unused = unused}};

    return mount_caches_ask(m, &req, done, arg, err);
}

static void mount_caches_kept(void *arg, const struct err *err, const char *json)
{
    struct manager *m = arg;

    (void)json;
    m->trimming = false;
    if (err)
        manager_warn(m, "cannot trim the cache mounts, trying again after the next build: %s",
                     err->msg);
    if (m->trim_again)
        mounts_keep_budget(m);
}

/* One trim at a time: builds that end during a trim cause one more trim. */
void mounts_keep_budget(struct manager *m)
{
    m->trim_again = m->trimming;
    if (m->trimming || m->closing)
        return;
    m->trimming = manager_mounts_trim(m, NULL, 0, mount_caches_kept, m, NULL) >= 0;
}

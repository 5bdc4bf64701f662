#include "daemon/core/caches/mount-caches.h"

#include "daemon/core/images/images.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"

static bool mount_caches_is_in_use(const struct manager *m)
{
    for (size_t i = 0; i < m->config.n_engines; i++) {
        const struct engine *e = m->config.engines[i];

        if (e->ops->image)
            return manager_asks_engine(m, e);
    }
    return false;
}

int manager_mounts(struct manager *m, engine_image_fn done, void *arg, struct err *err)
{
    const struct image_ask ask = {.verb = IMAGE_MOUNTS, .fd = -1};
    int r;

    if (!mount_caches_is_in_use(m))
        return 0;
    r = manager_image(m, NULL, &ask, done, arg, err);
    return r < 0 ? r : 1;
}

int manager_mount_remove(struct manager *m, char *id, engine_image_fn done, void *arg,
                         struct err *err)
{
    const struct image_ask ask = {.verb = IMAGE_MOUNT_REMOVE, .name = id, .fd = -1};

    return manager_image(m, NULL, &ask, done, arg, err);
}

int manager_mounts_trim(struct manager *m, const uint64_t *keep, uint64_t unused,
                        engine_image_fn done, void *arg, struct err *err)
{
    const struct image_ask ask = {.verb = IMAGE_MOUNTS_TRIM,
                                  .keep = keep ? *keep : m->config.mounts_budget,
                                  .unused = unused,
                                  .fd = -1};

    return manager_image(m, NULL, &ask, done, arg, err);
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

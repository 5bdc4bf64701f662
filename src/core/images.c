#include "core/images.h"

#include <stdlib.h>

#include "base/cleanup.h"
#include "base/strv.h"
#include "base/xalloc.h"
#include "core/manager-internal.h"

struct asked {
    struct manager *m;
    engine_image_fn done;
    void *arg;
};

static void answered(void *arg, const struct err *err, const char *json)
{
    struct asked *a = arg;

    a->m->loose--;
    a->done(a->arg, err, json);
    free(a);
}

static char **images_in_use(struct manager *m)
{
    char **used = NULL;
    struct sandbox *sb;

    for (size_t i = 0; manager_next(m, &i, &sb);)
        if (sb->spec.image_digest && !strv_contains(used, sb->spec.image_digest))
            strv_add(&used, sb->spec.image_digest);
    return used;
}

static struct engine *engine_with_images(struct manager *m, struct err *err)
{
    for (size_t i = 0; i < m->config.n_engines; i++)
        if (m->config.engines[i]->ops->image)
            return m->config.engines[i];
    err_set(err, ERR_UNSUPPORTED, "no engine of this daemon keeps images");
    return NULL;
}

int manager_image(struct manager *m, const char *engine, const struct image_ask *ask,
                  engine_image_fn done, void *arg, struct err *err)
{
    struct engine *e = engine ? manager_engine(m, engine, err) : engine_with_images(m, err);
    _cleanup_strv_ char **used = NULL;
    struct image_ask all = *ask;
    struct asked *a;

    if (e && m->closing)
        err_set(err, ERR_CONFLICT, "the daemon is ending");
    if (!e || m->closing) {
        fd_close(ask->fd);
        return -(int)(err ? err->code : ERR_SYSTEM);
    }
    all.used = used = images_in_use(m);
    a = xnew0(struct asked);
    *a = (struct asked){m, done, arg};
    m->loose++;
    engine_image(e, &all, answered, a);
    return 0;
}

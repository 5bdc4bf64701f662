#include "daemon/core/images/images.h"

#include <stdlib.h>

#include "daemon/core/sandbox/manager-internal.h"
#include "daemon/engine/engine-images.h"
#include "daemon/engine/engine.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/loop/loop.h"

/* A sandbox that is being removed still uses its image: the removal of the image waits so long. */
#define REMOVAL_WAIT (5 * USEC_PER_SEC)
#define REMOVAL_AGAIN (20 * USEC_PER_MSEC)

struct image_call {
    struct manager *m;
    struct engine *engine;
    engine_json_fn done;
    void *arg;

    /* of a removal */
    char *name;    /* owned */
    bool removing; /* sandboxes were being removed at the time of the request */
    struct deadline by;
    struct err refused;
    struct loop_timer *again; /* or NULL */
};

static void images_finish(struct image_call *a, const struct err *err, const char *json)
{
    a->m->background_calls--;
    a->done(a->arg, err, json);
    loop_timer_free(a->again);
    err_done(&a->refused);
    free(a->name);
    free(a);
}

/* An ephemeral sandbox without a command only waits for its readers. */
static bool images_any_being_removed(struct manager *m)
{
    struct sandbox *sb;

    for (size_t i = 0; manager_next(m, &i, &sb);) {
        const struct op *last = op_last(sb);

        if (sb->spec.image_digest &&
            ((sb->ephemeral && !sb->n_execs) || sb->state == SANDBOX_REMOVING ||
             (last && last->type == &op_remove)))
            return true;
    }
    return false;
}

static void images_remove_again(void *arg);

static void images_answered(void *arg, const struct err *err, const char *json)
{
    struct image_call *a = arg;

    if (!err || err->code != ERR_CONFLICT || !a->removing || a->m->closing ||
        deadline_passed(&a->by)) {
        images_finish(a, err, json);
        return;
    }
    err_done(&a->refused);
    err_copy(&a->refused, err);
    if (!a->again)
        a->again = loop_timer_new(a->m->loop, images_remove_again, a);
    loop_timer_set(a->again, REMOVAL_AGAIN, false);
}

static void images_submit(struct image_call *a, const struct image_op *req)
{
    _cleanup_strv_ char **used = NULL;
    struct image_op all = *req;
    struct sandbox *sb;

    for (size_t i = 0; manager_next(a->m, &i, &sb);)
        if (sb->spec.image_digest && !strv_contains(used, sb->spec.image_digest))
            strv_add(&used, sb->spec.image_digest);
    if (req->verb == IMAGE_REMOVE)
        all.remove.used = used;
    else if (req->verb == IMAGE_PRUNE)
        all.prune.used = used;
    a->removing = req->verb == IMAGE_REMOVE && images_any_being_removed(a->m);
    engine_image(a->engine, &all, images_answered, a);
}

static void images_remove_again(void *arg)
{
    struct image_call *a = arg;

    if (a->m->closing)
        images_finish(a, &a->refused, NULL);
    else
        images_submit(a, &(struct image_op){.verb = IMAGE_REMOVE, .remove.name = a->name});
}

static struct engine *images_engine_with_images(struct manager *m, struct err *err)
{
    for (size_t i = 0; i < m->config.n_engines; i++)
        if (m->config.engines[i]->ops->stores_images)
            return m->config.engines[i];
    err_set(err, ERR_UNSUPPORTED, "no engine of this daemon stores images");
    return NULL;
}

static int images_check_start(struct manager *m, const struct image_op *req, struct err *err)
{
    if (m->closing)
        return err_set(err, ERR_CONFLICT, "the daemon is shutting down");
    return req->verb == IMAGE_IMPORT || req->verb == IMAGE_PULL ? disk_floor_check(m, err) : 0;
}

int manager_image(struct manager *m, const char *engine, const struct image_op *req,
                  engine_json_fn done, void *arg, struct err *err)
{
    struct engine *e = engine ? manager_engine(m, engine, err) : images_engine_with_images(m, err);
    struct image_call *a;

    if (!e || images_check_start(m, req, err) < 0) {
        image_op_close(req);
        return -(int)(err ? err->code : ERR_SYSTEM);
    }
    a = xnew0(struct image_call);
    *a = (struct image_call){
        .m = m, .engine = e, .done = done, .arg = arg, .by = deadline_in(REMOVAL_WAIT)};
    a->name = req->verb == IMAGE_REMOVE ? xstrdup(req->remove.name) : NULL;
    m->background_calls++;
    images_submit(a, req);
    return 0;
}

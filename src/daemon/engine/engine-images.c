#include "daemon/engine/engine-images.h"

#include <string.h>

#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static char *engine_images_copy_str(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

/* Settings may hold a password. */
static void engine_images_wipe(char *settings)
{
    explicit_bzero(settings, strlen(settings));
    free(settings);
}

void image_op_copy(struct image_op *dst, const struct image_op *src)
{
    *dst = *src;
    switch (src->verb) {
    case IMAGE_LIST:
        break;
    case IMAGE_SHOW:
        dst->show.name = xstrdup(src->show.name);
        break;
    case IMAGE_IMPORT:
        dst->import.name = engine_images_copy_str(src->import.name);
        break;
    case IMAGE_EXPORT:
        dst->export.name = xstrdup(src->export.name);
        dst->export.format = xstrdup(src->export.format);
        break;
    case IMAGE_PULL:
        dst->pull.name = engine_images_copy_str(src->pull.name);
        dst->pull.settings = xstrdup(src->pull.settings);
        break;
    case IMAGE_PUSH:
        dst->push.name = xstrdup(src->push.name);
        dst->push.settings = xstrdup(src->push.settings);
        break;
    case IMAGE_REMOVE:
        dst->remove.name = xstrdup(src->remove.name);
        dst->remove.used = strv_copy(src->remove.used);
        break;
    case IMAGE_PRUNE:
        dst->prune.used = strv_copy(src->prune.used);
        break;
    }
}

void image_op_close(const struct image_op *r)
{
    if (r->verb == IMAGE_IMPORT)
        fd_close(r->import.archive);
    else if (r->verb == IMAGE_EXPORT)
        fd_close(r->export.archive);
    else if (r->verb == IMAGE_PULL)
        fd_close(r->pull.progress);
    else if (r->verb == IMAGE_PUSH)
        fd_close(r->push.progress);
}

void image_op_done(struct image_op *r)
{
    image_op_close(r);
    switch (r->verb) {
    case IMAGE_LIST:
        break;
    case IMAGE_SHOW:
        free(r->show.name);
        break;
    case IMAGE_IMPORT:
        free(r->import.name);
        break;
    case IMAGE_EXPORT:
        free(r->export.name);
        free(r->export.format);
        break;
    case IMAGE_PULL:
        free(r->pull.name);
        engine_images_wipe(r->pull.settings);
        break;
    case IMAGE_PUSH:
        free(r->push.name);
        engine_images_wipe(r->push.settings);
        break;
    case IMAGE_REMOVE:
        free(r->remove.name);
        strv_free(r->remove.used);
        break;
    case IMAGE_PRUNE:
        strv_free(r->prune.used);
        break;
    }
    *r = (struct image_op){0};
}

void cache_mount_op_copy(struct cache_mount_op *dst, const struct cache_mount_op *src)
{
    *dst = *src;
    if (src->verb == CACHE_MOUNT_REMOVE)
        dst->remove.id = xstrdup(src->remove.id);
}

void cache_mount_op_done(struct cache_mount_op *r)
{
    if (r->verb == CACHE_MOUNT_REMOVE)
        free(r->remove.id);
    *r = (struct cache_mount_op){0};
}

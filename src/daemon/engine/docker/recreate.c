/*
 * The state before a re-creation: the old container, stopped and renamed to "<name>.old". Names of
 * sandboxes have no dot. The file execs/<id>/kept is written before the rename and removed last, so
 * that nobody has to ask the engine whether an old container exists.
 */
#include "daemon/engine/docker/recreate.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/layers.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

#define KEPT_FILE "kept"
#define KEPT_SUFFIX ".old"

bool container_is_kept(const json_t *item)
{
    const char *name = json_string_value(json_array_get(json_object_get(item, "Names"), 0));
    size_t len = name ? strlen(name) : 0, end = strlen(KEPT_SUFFIX);

    return len > end && STREQ(name + len - end, KEPT_SUFFIX);
}

static char *docker_recreate_file(const char *id)
{
    return xasprintf("%s/" KEPT_FILE, id);
}

bool docker_is_kept(const struct docker_engine *d, const char *id)
{
    _cleanup_free_ char *path = docker_recreate_file(id);

    return faccessat(d->execs, path, F_OK, 0) == 0;
}

static int docker_recreate_forget(struct docker_engine *d, const char *id, struct err *err)
{
    _cleanup_free_ char *path = docker_recreate_file(id);

    if (unlinkat(d->execs, path, 0) < 0 && errno != ENOENT)
        return err_sys(err, errno, "remove '%s'", path);
    return 0;
}

static int docker_recreate_rename(struct docker_engine *d, const char *container, const char *name,
                                  const char *suffix, const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *full = xasprintf("%s-%s%s", d->prefix, name, suffix);
    _cleanup_free_ char *path = docker_path("/containers/%s/rename?name=%s", container, full);
    int r = docker_ask(d, "POST", path, NULL, by, NULL, err);

    return r < 0 ? err_wrap(err, "rename the container to '%s'", full) : 0;
}

/* ---- both containers of a sandbox ---- */

struct recreate_pair {
    char *present, *kept;   /* ids, or NULL; owned */
    char hash[65], old[65]; /* of both */
};

static void docker_recreate_pair_done(struct recreate_pair *p)
{
    free(p->present);
    free(p->kept);
}

static void docker_recreate_take(struct recreate_pair *p, const json_t *item)
{
    bool kept = container_is_kept(item);
    char **id = kept ? &p->kept : &p->present;

    free(*id);
    *id = xstrdup(docker_text(item, "Id"));
    snprintf(kept ? p->old : p->hash, sizeof(p->hash), "%s",
             docker_text(json_object_get(item, "Labels"), LABEL_HASH));
}

static int docker_recreate_find(struct docker_engine *d, const char *id, const struct deadline *by,
                                struct recreate_pair *ret, struct err *err)
{
    _cleanup_json_ json_t *filters =
        json_pack("{s:[o]}", "label", json_sprintf(LABEL_ID "=%s", id));
    _cleanup_free_ char *text = json_to_text(filters, true);
    _cleanup_free_ char *path = docker_path("/containers/json?all=1&filters=%s", text);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    const json_t *item;
    size_t i;
    int r = docker_ask(d, "GET", path, NULL, by, &reply, err);

    if (r < 0)
        return r;
    json_array_foreach (reply.json, i, item)
        if (docker_owns(d, id, json_object_get(item, "Labels")))
            docker_recreate_take(ret, item);
    return 0;
}

/* ---- keeping and settling ---- */

int docker_drop_kept(struct docker_engine *d, const char *id, const struct deadline *by,
                     struct err *err)
{
    _cleanup_(docker_recreate_pair_done) struct recreate_pair p = {0};
    int r;

    if (!docker_is_kept(d, id))
        return 0;
    r = docker_recreate_find(d, id, by, &p, err);
    if (r < 0)
        return r;
    r = p.kept ? container_remove(d, p.kept, by, err) : 0;
    return r < 0 ? r : docker_recreate_forget(d, id, err);
}

int docker_keep(struct docker_engine *d, const struct sandbox_request *req, const char *container,
                const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *path = docker_recreate_file(req->id);
    int r;

    r = docker_drop_kept(d, req->id, by, err);
    if (r < 0)
        return r;
    r = file_replace(d->execs, path, "", 0, 0600, false, err);
    if (r < 0)
        return r;
    return docker_recreate_rename(d, container, req->name, KEPT_SUFFIX, by, err);
}

static int docker_recreate_go_back(struct docker_engine *d, const struct sandbox_request *req,
                                   struct recreate_pair *p, const struct deadline *by,
                                   struct err *err)
{
    int r = p->present ? container_remove(d, p->present, by, err) : 0;

    if (r < 0)
        return r;
    r = docker_recreate_rename(d, p->kept, req->name, "", by, err);
    if (r < 0)
        return r;
    free(p->present);
    p->present = TAKE_PTR(p->kept);
    memcpy(p->hash, p->old, sizeof(p->hash));
    return 0;
}

static int docker_recreate_settle(struct docker_engine *d, const struct sandbox_request *req,
                                  struct recreate_pair *p, const struct deadline *by,
                                  struct err *err)
{
    int r;

    r = docker_recreate_find(d, req->id, by, p, err);
    if (r < 0)
        return r;
    container_forget(d, req->id);
    if (p->kept && (!p->present || STREQ(p->old, req->hash)))
        r = docker_recreate_go_back(d, req, p, by, err);
    else if (p->kept)
        r = container_remove(d, p->kept, by, err);
    if (r < 0)
        return r;
    if (docker_is_kept(d, req->id))
        layers_sweep(d, req->id, by);
    return docker_recreate_forget(d, req->id, err);
}

int docker_settle(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct engine_sandbox *ret, struct err *err)
{
    _cleanup_(docker_recreate_pair_done) struct recreate_pair p = {0};
    struct docker_engine *d = docker_of(e);
    int r = docker_recreate_settle(d, req, &p, by, err);

    if (r < 0)
        return err_wrap(err, "end the re-creation of sandbox '%s'", req->name);
    if (!p.present || !STREQ(p.hash, req->hash))
        return 0;
    container_remember(d, req->id, p.present);
    memcpy(ret->hash, req->hash, sizeof(ret->hash));
    return docker_note(e, req->id, req->spec_text, err);
}

#include "daemon/engine/docker/volumes.h"

#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "daemon/engine/caches.h"
#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/layers.h"
#include "daemon/engine/engine-caches.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/usage.h"
#include "lib/base/xalloc.h"

#define HELPER_FOLDER "/fill"

/* ---- creating ---- */

static json_t *volumes_body_of(const struct docker_engine *d, const struct volume_wish *w)
{
    json_t *labels = json_pack("{s:s}", LABEL_ROOT, d->root_id), *o;

    if (w->id)
        json_object_set_new(labels, LABEL_ID, json_string(w->id));
    if (w->base)
        json_object_set_new(labels, LABEL_BASE, json_string(w->base));
    o = json_pack("{s:s, s:s, s:o}", "Name", w->name, "Driver", "local", "Labels", labels);
    if (w->overlay)
        json_object_set_new(
            o, "DriverOpts",
            json_pack("{s:s, s:s, s:s}", "type", "overlay", "device", "overlay", "o", w->overlay));
    return o;
}

static bool volumes_is_ours(const struct docker_engine *d, const struct volume_wish *w,
                            const json_t *doc)
{
    const json_t *labels = json_object_get(doc, "Labels");

    return STREQ(docker_text(labels, LABEL_ROOT), d->root_id) &&
           STREQ(docker_text(labels, LABEL_ID), w->id ? w->id : "") &&
           STREQ(docker_text(labels, LABEL_BASE), w->base ? w->base : "") &&
           STREQ(docker_text(doc, "Driver"), "local");
}

/* 1: the volume exists with other options (an older base) and must be created again. */
static int volumes_make_once(struct docker_engine *d, const struct volume_wish *w,
                             const struct deadline *by, char **ret_path, struct err *err)
{
    _cleanup_json_ json_t *body = volumes_body_of(d, w);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    const char *options;
    int r;

    r = docker_ask(d, "POST", "/volumes/create", body, by, &reply, err);
    if (r < 0)
        return r;
    if (!volumes_is_ours(d, w, reply.json))
        return err_set(err, ERR_CONFLICT, "exists, but was not created by ripcord");
    options = docker_text(json_object_get(reply.json, "Options"), "o");
    if (!STREQ(options, w->overlay ? w->overlay : ""))
        return 1;
    if (ret_path)
        *ret_path = xstrdup(docker_text(reply.json, "Mountpoint"));
    return 0;
}

static int volumes_make(struct docker_engine *d, const struct volume_wish *wish,
                        const struct deadline *by, char **ret_path, struct err *err)
{
    int r = volumes_make_once(d, wish, by, ret_path, err);

    if (r != 1)
        return r;
    r = volume_remove(d, wish->name, by, err);
    if (r < 0)
        return r;
    r = volumes_make_once(d, wish, by, ret_path, err);
    return r == 1 ? err_set(err, ERR_ENGINE, "the engine ignores the volume's options") : r;
}

int volume_make(struct docker_engine *d, const struct volume_wish *wish, const struct deadline *by,
                char **ret_path, struct err *err)
{
    int r = volumes_make(d, wish, by, ret_path, err);

    return r < 0 ? err_wrap(err, "volume '%s'", wish->name) : 0;
}

int volume_remove(struct docker_engine *d, const char *name, const struct deadline *by,
                  struct err *err)
{
    _cleanup_free_ char *path = docker_path("/volumes/%s?force=1", name);

    return docker_ask(d, "DELETE", path, NULL, by, NULL, err);
}

bool volume_exists(struct docker_engine *d, const char *name, const char *id,
                   const struct deadline *by)
{
    _cleanup_free_ char *path = docker_path("/volumes/%s", name);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;

    return docker_ask(d, "GET", path, NULL, by, &reply, NULL) >= 0 &&
           docker_owns(d, id, json_object_get(reply.json, "Labels"));
}

/* ---- filling ---- */

/* Any image works, because the container is never started. */
static int volumes_any_image(struct docker_engine *d, const struct deadline *by, char **ret,
                             struct err *err)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int r = docker_ask(d, "GET", "/images/json", NULL, by, &reply, err);

    if (r < 0)
        return r;
    if (json_array_size(reply.json) == 0)
        return err_set(err, ERR_NOT_FOUND, "the engine has no image at all");
    *ret = xstrdup(docker_text(json_array_get(reply.json, 0), "Id"));
    return 0;
}

int helper_make(struct docker_engine *d, const char *image, const char *volume,
                const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_json_ json_t *body =
        json_pack("{s:s, s:[s], s:{s:s}, s:{s:s}}", "Image", image, "Cmd", "/", "Labels",
                  LABEL_HELPER, d->root_id, "HostConfig", "NetworkMode", "none");
    int r;

    if (volume)
        json_object_set_new(json_object_get(body, "HostConfig"), "Mounts",
                            json_pack("[{s:s, s:s, s:s}]", "Type", "volume", "Source", volume,
                                      "Target", HELPER_FOLDER));
    r = docker_ask(d, "POST", "/containers/create", body, by, &reply, err);
    if (r < 0)
        return r;
    *ret = xstrdup(docker_text(reply.json, "Id"));
    return 0;
}

int volume_fill(struct docker_engine *d, const char *name, const struct docker_source *tar,
                const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *image = NULL, *container = NULL, *path = NULL;
    _cleanup_err_ struct err undo = ERR_INIT;
    int r = volumes_any_image(d, by, &image, err);

    r = r < 0 ? r : helper_make(d, image, name, by, &container, err);
    if (r < 0)
        return err_wrap(err, "fill volume '%s'", name);
    path = docker_path("/containers/%s/archive?path=" HELPER_FOLDER, container);
    r = docker_upload(docker_client(d), "PUT", path, tar, by, NULL, err);
    if (container_remove(d, container, by, &undo) < 0)
        log_debug("cannot remove container %s: %s", container, undo.msg);
    return r < 0 ? err_wrap(err, "fill volume '%s'", name) : 0;
}

/* ---- listing ---- */

static int docker_volumes_list(struct docker_engine *d, const char *what, const char *label,
                               const char *value, const struct deadline *by,
                               struct docker_reply *ret, struct err *err)
{
    _cleanup_json_ json_t *filters =
        json_pack("{s:[o]}", "label", json_sprintf("%s=%s", label, value));
    _cleanup_free_ char *text = json_to_text(filters, true);
    _cleanup_free_ char *path = docker_path(what, text);

    return docker_ask(d, "GET", path, NULL, by, ret, err);
}

uint64_t volume_usage(struct docker_engine *d, const char *path, const struct deadline *by)
{
    uint64_t sum = 0;

    if (docker_client(d)->endpoint.transport != DOCKER_UNIX || *path != '/' ||
        access(path, R_OK | X_OK) < 0 || usage_add(AT_FDCWD, path, by, &sum, NULL) < 0)
        return UINT64_MAX;
    return sum;
}

/* The rest of the name "<prefix>-<kind>-<rest>"; NULL: the name has another form. */
static const char *volumes_rest_of(const struct docker_engine *d, const char *name,
                                   const char *kind)
{
    size_t n = strlen(d->prefix), k = strlen(kind);

    if (strncmp(name, d->prefix, n) != 0 || name[n] != '-' || strncmp(name + n + 1, kind, k) != 0 ||
        name[n + 1 + k] != '-')
        return NULL;
    return name + n + k + 2;
}

static void volumes_add_shared(struct docker_engine *d, const json_t *v, const struct deadline *by,
                               struct engine_caches *ret)
{
    const char *rest = volumes_rest_of(d, docker_text(v, "Name"), "cache");
    _cleanup_free_ char *tool = rest ? xstrndup(rest, strcspn(rest, ".")) : NULL;
    const char *dot = rest ? strchr(rest, '.') : NULL;

    if (rest)
        engine_caches_add(ret, ENGINE_CACHE_SHARED, tool, dot ? dot + 1 : "")->bytes =
            volume_usage(d, docker_text(v, "Mountpoint"), by);
}

static void volumes_add_private(struct docker_engine *d, const json_t *v, const struct deadline *by,
                                struct engine_caches *ret)
{
    const char *name = docker_text(v, "Name"), *upper = volumes_rest_of(d, name, "upper");
    const char *rest = upper ? upper : volumes_rest_of(d, name, "caches");
    const char *dot = rest ? strchr(rest, '.') : NULL;

    if (rest)
        engine_caches_add(ret, ENGINE_CACHE_PRIVATE, dot ? dot + 1 : "",
                          docker_text(json_object_get(v, "Labels"), LABEL_ID))
            ->bytes = volume_usage(d, docker_text(v, "Mountpoint"), by);
}

int volumes_list(struct docker_engine *d, const struct deadline *by, struct engine_caches *ret,
                 struct err *err)
{
    _cleanup_reply_ struct docker_reply shared = DOCKER_REPLY_INIT, own = DOCKER_REPLY_INIT;
    const json_t *v;
    size_t i;
    int r;

    r = docker_volumes_list(d, "/volumes?filters=%s", LABEL_SHARED, d->prefix, by, &shared, err);
    if (r < 0)
        return r;
    r = docker_volumes_list(d, "/volumes?filters=%s", LABEL_ROOT, d->root_id, by, &own, err);
    if (r < 0)
        return r;
    json_array_foreach (json_object_get(shared.json, "Volumes"), i, v)
        volumes_add_shared(d, v, by, ret);
    json_array_foreach (json_object_get(own.json, "Volumes"), i, v)
        volumes_add_private(d, v, by, ret);
    return 0;
}

/* ---- removing ---- */

int shared_remove(struct docker_engine *d, const char *tool, const struct deadline *by,
                  struct err *err)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    const json_t *v;
    size_t i;
    int r = docker_volumes_list(d, "/volumes?filters=%s", LABEL_SHARED, d->prefix, by, &reply, err);

    if (r < 0)
        return r;
    json_array_foreach (json_object_get(reply.json, "Volumes"), i, v) {
        const char *name = docker_text(v, "Name"), *rest = volumes_rest_of(d, name, "cache");
        size_t len = strlen(tool);

        if (!rest || (len && (strncmp(rest, tool, len) != 0 || (rest[len] && rest[len] != '.'))))
            continue;
        r = volume_remove(d, name, by, err);
        if (r < 0)
            return err_wrap(err, "volume '%s'", name);
        ensured_forget(&d->ensured, "volume", name);
    }
    return 0;
}

void layers_sweep(struct docker_engine *d, const char *id, const struct deadline *by)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    const json_t *v;
    size_t i;

    if (docker_volumes_list(d, "/volumes?filters=%s", LABEL_ID, id, by, &reply, NULL) < 0)
        return;
    json_array_foreach (json_object_get(reply.json, "Volumes"), i, v)
        if (docker_owns(d, id, json_object_get(v, "Labels")) &&
            volumes_rest_of(d, docker_text(v, "Name"), "layer"))
            volume_remove(d, docker_text(v, "Name"), by, NULL);
}

static bool volumes_is_below_a_layer(const json_t *volumes, const char *path)
{
    _cleanup_free_ char *lower = xasprintf("lowerdir=%s/", path);
    const json_t *v;
    size_t i;

    json_array_foreach (volumes, i, v)
        if (strncmp(docker_text(json_object_get(v, "Options"), "o"), lower, strlen(lower)) == 0)
            return true;
    return false;
}

void bases_sweep(struct docker_engine *d, const char *tool, const char *present,
                 const struct deadline *by)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    const json_t *all, *v;
    size_t i;

    if (docker_volumes_list(d, "/volumes?filters=%s", LABEL_ROOT, d->root_id, by, &reply, NULL) < 0)
        return;
    all = json_object_get(reply.json, "Volumes");
    json_array_foreach (all, i, v) {
        const char *name = docker_text(v, "Name");
        _cleanup_err_ struct err err = ERR_INIT;

        if (!STREQ(docker_text(json_object_get(v, "Labels"), LABEL_BASE), tool) ||
            STREQ(name, present) || volumes_is_below_a_layer(all, docker_text(v, "Mountpoint")))
            continue;
        if (volume_remove(d, name, by, &err) < 0)
            log_debug("cannot remove the old base '%s': %s", name, err.msg);
    }
}

void helpers_remove(struct docker_engine *d, const struct deadline *by)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    const json_t *c;
    size_t i;

    if (docker_volumes_list(d, "/containers/json?all=1&filters=%s", LABEL_HELPER, d->root_id, by,
                            &reply, NULL) < 0)
        return;
    json_array_foreach (reply.json, i, c)
        if (STREQ(docker_text(json_object_get(c, "Labels"), LABEL_HELPER), d->root_id))
            container_remove(d, docker_text(c, "Id"), by, NULL);
}

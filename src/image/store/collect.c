/*
 * Lists the store, and removes what is not referred to. References are counted each time, from the
 * names and the images themselves, so that no count can be wrong after a crash.
 */
#include <dirent.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/store/images.h"
#include "lib/base/fd.h"
#include "lib/base/map.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

/* ---- reading folders ---- */

static int collect_names_in(const struct images *s, const char *folder, char ***ret,
                            struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd = openat(s->dir, folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int saved = errno;

        fd_close(fd);
        return err_sys(err, saved, "read folder '%s' of the image store", folder);
    }
    for (const struct dirent *e; (e = readdir(d));)
        if (!STREQ(e->d_name, ".") && !STREQ(e->d_name, ".."))
            strv_add(ret, e->d_name);
    return 0;
}

/* A damaged record is left out, and the next collection removes it. A read error of the disk is
 * returned: it must not remove an image. */
static int collect_read_images(const struct images *s, json_t *ret, struct err *err)
{
    _cleanup_strv_ char **names = NULL;
    int r = collect_names_in(s, "images", &names, err);

    if (r < 0)
        return r;
    for (char **n = names; n && *n; n++) {
        _cleanup_free_ char *id = xasprintf("sha256:%s", *n);
        _cleanup_err_ struct err why = ERR_INIT;
        json_t *record = NULL;

        r = images_read(s, id, &record, &why);
        if (r == -ERR_SYSTEM)
            return err_move(err, &why);
        if (r >= 0)
            json_object_set_new(ret, id, record);
    }
    return 0;
}

/* ---- counting ---- */

/* {digest: number of images with this layer} */
static json_t *collect_count_layers(const json_t *images)
{
    json_t *counts = json_object(), *image, *layer;
    const char *id;
    size_t i;

    json_object_foreach ((json_t *)images, id, image)
        json_array_foreach (json_object_get(image, "layers"), i, layer) {
            const char *digest = json_string_value(layer);
            json_int_t n;

            if (!digest_is_valid(digest))
                continue;
            n = json_integer_value(json_object_get(counts, digest));
            json_object_set_new(counts, digest, json_integer(n + 1));
        }
    return counts;
}

static void collect_add_sizes(const struct images *s, json_t *image, const json_t *counts)
{
    json_int_t all = 0, own = 0;
    json_t *layer;
    size_t i;

    json_array_foreach (json_object_get(image, "layers"), i, layer) {
        const char *digest = json_string_value(layer);
        json_int_t bytes;

        if (!digest_is_valid(digest))
            continue;
        bytes = (json_int_t)images_layer_bytes(s, digest);
        all += bytes;
        if (json_integer_value(json_object_get(counts, digest)) == 1)
            own += bytes;
    }
    json_object_set_new(image, "bytes", json_integer(all));
    json_object_set_new(image, "own_bytes", json_integer(own));
}

static void collect_add_names(json_t *image, const json_t *refs, const char *id)
{
    json_t *names = json_array(), *of;
    const char *name;

    json_object_foreach ((json_t *)refs, name, of)
        if (json_is_string(of) && STREQ(json_string_value(of), id))
            json_array_append_new(names, json_string(name));
    json_object_set_new(image, "names", names);
}

int images_list(const struct images *s, json_t **ret, struct err *err)
{
    _cleanup_json_ json_t *images = json_object(), *refs = NULL, *counts = NULL;
    json_t *list, *image, *n;
    json_int_t total = 0;
    const char *id;
    int r;

    r = images_refs(s, &refs, err);
    if (r < 0)
        return r;
    r = collect_read_images(s, images, err);
    if (r < 0)
        return r;
    list = json_array();
    counts = collect_count_layers(images);
    json_object_foreach (images, id, image) {
        json_object_set_new(image, "id", json_string(id));
        collect_add_names(image, refs, id);
        collect_add_sizes(s, image, counts);
        json_array_append(list, image);
    }
    json_object_foreach (counts, id, n)
        total += (json_int_t)images_layer_bytes(s, id);
    *ret = json_pack("{s:o, s:I}", "images", list, "bytes", total);
    return 0;
}

/* ---- collecting ---- */

struct collect_sweep {
    struct images *s;
    images_remove_fn fn;
    void *arg;
    struct images_collected *count;
};

static bool collect_is_named(const json_t *refs, const char *id)
{
    const char *name;
    json_t *of;

    json_object_foreach ((json_t *)refs, name, of)
        if (json_is_string(of) && STREQ(json_string_value(of), id))
            return true;
    return false;
}

static int collect_drop_images(struct collect_sweep *w, json_t *images, const json_t *refs,
                               char *const *used, struct err *err)
{
    _cleanup_strv_ char **names = NULL;
    int r = collect_names_in(w->s, "images", &names, err);

    if (r < 0)
        return r;
    for (char **n = names; n && *n; n++) {
        _cleanup_free_ char *id = xasprintf("sha256:%s", *n), *path = xasprintf("images/%s", *n);

        if (json_object_get(images, id) && (collect_is_named(refs, id) || strv_contains(used, id)))
            continue;
        if (unlinkat(w->s->dir, path, 0) < 0 && errno != ENOENT)
            return err_sys(err, errno, "remove '%s' of the image store", path);
        w->count->images += json_object_del(images, id) == 0;
    }
    return 0;
}

/* Moved away in one step, so that no incomplete layer is visible under its name. */
static int collect_drop_layer(struct collect_sweep *w, const char *hex, struct err *err)
{
    _cleanup_free_ char *digest = xasprintf("sha256:%s", hex), *tmp = xasprintf("tmp/old-%s", hex);
    _cleanup_free_ char *path = xasprintf("layers/%s", hex);

    w->count->bytes += digest_is_valid(digest) ? images_layer_bytes(w->s, digest) : 0;
    w->count->layers++;
    if (renameat(w->s->dir, path, w->s->dir, tmp) == 0)
        return 0;
    /* tmp/ still has an older one of that name: remove this one in place. */
    return w->fn(w->arg, w->s->dir, path, err);
}

/* keep: counts the layers of cached build steps as used. Else removes the cache entries. */
static int collect_sweep_cache(struct collect_sweep *w, bool keep, json_t *counts, struct err *err)
{
    _cleanup_strv_ char **names = NULL;
    int r = collect_names_in(w->s, "cache", &names, err);

    if (r < 0)
        return r;
    for (char **n = names; n && *n; n++) {
        _cleanup_free_ char *path = xasprintf("cache/%s", *n), *text = NULL;
        _cleanup_json_ json_t *doc = NULL;
        const char *layer;
        size_t len;

        if (!keep) {
            if (unlinkat(w->s->dir, path, 0) < 0 && errno != ENOENT)
                return err_sys(err, errno, "remove '%s' of the image store", path);
            continue;
        }
        if (file_read(w->s->dir, path, KIB(4), &text, &len, NULL) < 0 ||
            json_parse("build step", text, len, &doc, NULL) < 0)
            continue;
        layer = json_string_value(json_object_get(doc, "layer"));
        if (digest_is_valid(layer) && images_has_layer(w->s, layer))
            json_object_set_new(counts, layer, json_integer(1));
    }
    return 0;
}

static int collect_drop_layers(struct collect_sweep *w, const json_t *counts, struct err *err)
{
    _cleanup_strv_ char **names = NULL;
    int r = collect_names_in(w->s, "layers", &names, err);

    if (r < 0)
        return r;
    for (char **n = names; n && *n; n++) {
        _cleanup_free_ char *digest = xasprintf("sha256:%s", *n);

        if (json_object_get(counts, digest))
            continue;
        r = collect_drop_layer(w, *n, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool collect_blob_is_used(const json_t *images, const char *digest)
{
    const char *id;
    json_t *image;

    json_object_foreach ((json_t *)images, id, image) {
        const char *manifest = json_string_value(json_object_get(image, "manifest"));

        if (STREQ(id, digest) || (manifest && STREQ(manifest, digest)))
            return true;
    }
    return false;
}

static int collect_drop_blobs(struct collect_sweep *w, const json_t *images, struct err *err)
{
    _cleanup_strv_ char **names = NULL;
    int r = collect_names_in(w->s, "blobs", &names, err);

    if (r < 0)
        return r;
    for (char **n = names; n && *n; n++) {
        _cleanup_free_ char *digest = xasprintf("sha256:%s", *n), *path = xasprintf("blobs/%s", *n);

        if (!collect_blob_is_used(images, digest) && unlinkat(w->s->dir, path, 0) < 0 &&
            errno != ENOENT)
            return err_sys(err, errno, "remove '%s' of the image store", path);
    }
    return 0;
}

static int collect_empty_tmp(struct collect_sweep *w, struct err *err)
{
    _cleanup_strv_ char **names = NULL;
    int r = collect_names_in(w->s, "tmp", &names, err);

    if (r < 0)
        return r;
    for (char **n = names; n && *n; n++) {
        _cleanup_free_ char *path = xasprintf("tmp/%s", *n);

        r = w->fn(w->arg, w->s->dir, path, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int images_collect(struct images *s, char *const *used, bool keep_cache, images_remove_fn fn,
                   void *arg, struct images_collected *ret, struct err *err)
{
    _cleanup_json_ json_t *images = json_object(), *refs = NULL, *counts = NULL;
    struct images_collected count = {0};
    struct collect_sweep w = {s, fn, arg, &count};
    int r;

    r = images_refs(s, &refs, err);
    if (r < 0)
        return r;
    r = collect_read_images(s, images, err);
    if (r < 0)
        return r;
    r = collect_drop_images(&w, images, refs, used, err);
    if (r < 0)
        return r;
    counts = collect_count_layers(images);
    r = collect_sweep_cache(&w, keep_cache, counts, err);
    if (r < 0)
        return r;
    r = collect_drop_layers(&w, counts, err);
    if (r < 0)
        return r;
    r = collect_drop_blobs(&w, images, err);
    if (r < 0)
        return r;
    r = collect_empty_tmp(&w, err);
    if (r < 0)
        return r;
    *ret = count;
    return 0;
}

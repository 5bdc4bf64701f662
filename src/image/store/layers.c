/*
 * Layers of the store. Adding a layer does not wait for the disk, because that takes longer than
 * many steps of a build. Until the layer is on the disk it has a mark with the boot id of its
 * creation. In the same boot its files can be read, on the disk or not. After another boot the
 * layer may be incomplete, and counts as missing. The mark is written before the layer gets its
 * name, and removed when all files are on the disk.
 */
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/store/images.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

#define MARK "fresh"

static char *images_layers_mark_path(const char *digest)
{
    return xasprintf("layers/%s/" MARK, digest_hex(digest));
}

static bool images_layers_has_mark(const struct images *s, const char *digest)
{
    _cleanup_free_ char *mark = images_layers_mark_path(digest);

    return faccessat(s->dir, mark, F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

/* A mark that a crash has left incomplete counts as one of another boot. */
static bool images_layers_is_from_other_boot(const struct images *s, const char *digest)
{
    _cleanup_free_ char *mark = images_layers_mark_path(digest), *text = NULL;
    char boot[BOOT_ID_MAX];
    size_t len;

    if (!images_layers_has_mark(s, digest))
        return false;
    return file_read(s->dir, mark, BOOT_ID_MAX, &text, &len, NULL) < 0 ||
           !STREQ(text, time_boot_id(boot));
}

bool images_has_layer(const struct images *s, const char *digest)
{
    _cleanup_free_ char *path = xasprintf("layers/%s/fs", digest_hex(digest));
    struct stat st;

    return fstatat(s->dir, path, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode) &&
           !images_layers_is_from_other_boot(s, digest);
}

/* ---- adding ---- */

static int images_layers_describe(struct images *s, const char *tmp, uint64_t bytes,
                                  struct err *err)
{
    _cleanup_free_ char *about = xasprintf("%s/about", tmp), *mark = xasprintf("%s/" MARK, tmp);
    _cleanup_free_ char *text = xasprintf("{\"bytes\":%llu}", (unsigned long long)bytes);
    char boot[BOOT_ID_MAX];
    int r = file_replace(s->dir, about, text, strlen(text), 0600, false, err);

    if (r < 0)
        return r;
    time_boot_id(boot);
    return file_replace(s->dir, mark, boot, strlen(boot), 0600, false, err);
}

/* Another process may have added the layer. An incomplete one from before a crash is replaced. */
static int images_layers_place(struct images *s, const char *digest, const char *tmp,
                               struct err *err)
{
    _cleanup_free_ char *path = xasprintf("layers/%s", digest_hex(digest));
    int r = renameat(s->dir, tmp, s->dir, path);

    if (r < 0 && (errno == EEXIST || errno == ENOTEMPTY)) {
        if (images_has_layer(s, digest))
            return 0;
        r = renameat2(s->dir, tmp, s->dir, path, RENAME_EXCHANGE);
    }
    return r < 0 ? err_sys(err, errno, "put layer '%s' into the store", digest) : 0;
}

int images_put_layer(struct images *s, const char *digest, const char *name, uint64_t bytes,
                     struct err *err)
{
    _cleanup_free_ char *tmp = xasprintf("tmp/%s", name);
    int r = images_layers_describe(s, tmp, bytes, err);

    if (r < 0)
        return r;
    return images_layers_place(s, digest, tmp, err);
}

bool images_are_fresh(const struct images *s, const json_t *layers)
{
    const json_t *layer;
    size_t i;

    json_array_foreach (layers, i, layer)
        if (digest_is_valid(json_string_value(layer)) &&
            images_layers_has_mark(s, json_string_value(layer)))
            return true;
    return false;
}

int images_settle(struct images *s, const json_t *layers, struct err *err)
{
    const json_t *layer;
    size_t i;

    /* The whole file system at once: fsync() of each file would take longer than unpacking. */
    if (syncfs(s->dir) < 0)
        return err_sys(err, errno, "sync the image store");
    json_array_foreach (layers, i, layer)
        if (digest_is_valid(json_string_value(layer))) {
            _cleanup_free_ char *mark = images_layers_mark_path(json_string_value(layer));

            if (unlinkat(s->dir, mark, 0) < 0 && errno != ENOENT)
                return err_sys(err, errno, "remove '%s' of the image store", mark);
        }
    return 0;
}

/* ---- images built on `host` ---- */

bool images_is_on_host(const json_t *record)
{
    const char *base = json_string_value(json_object_get(record, "base"));

    return base && STREQ(base, "host");
}

bool images_begin_with_host(char *const *layers)
{
    return layers && *layers && STREQ(*layers, IMAGES_HOST_LAYER);
}

int images_set_host(struct images *s, const char *generation, struct err *err)
{
    if (strncmp(generation, "g-", 2) != 0 || strspn(generation + 2, "0123456789abcdef") != 16 ||
        generation[18])
        return err_set(err, ERR_INVALID, "'%.64s' is not a generation of image 'host'", generation);
    snprintf(s->host, sizeof(s->host), "../host/%s", generation);
    return 0;
}

int images_layers(const json_t *record, char ***ret, struct err *err)
{
    _cleanup_strv_ char **own = NULL;
    char **layers = NULL;
    int r = json_read_strv(json_object_get(record, "layers"), "layers", &own, err);

    if (r < 0)
        return r;
    if (images_is_on_host(record))
        strv_add(&layers, IMAGES_HOST_LAYER);
    for (char **l = own; l && *l; l++)
        strv_add(&layers, *l);
    *ret = layers;
    return 0;
}

char *images_layer_path(const struct images *s, const char *layer)
{
    return STREQ(layer, IMAGES_HOST_LAYER) ? xstrdup(s->host)
                                           : xasprintf("layers/%s/fs", digest_hex(layer));
}

/* ---- reading ---- */

char **images_stack(char *const *layers)
{
    char **stack = NULL;

    for (size_t i = strv_len(layers); i-- > 0;)
        if (!strv_contains(stack, layers[i]))
            strv_add(&stack, layers[i]);
    return stack;
}

uint64_t images_layer_bytes(const struct images *s, const char *digest)
{
    _cleanup_free_ char *path = xasprintf("layers/%s/about", digest_hex(digest)), *text = NULL;
    _cleanup_json_ json_t *doc = NULL;
    uint64_t bytes = 0;
    const struct json_field fields[] = {{"bytes", JSON_FIELD_U64, &bytes}};
    size_t len;

    if (file_read(s->dir, path, KIB(4), &text, &len, NULL) >= 0 &&
        json_parse("layer", text, len, &doc, NULL) >= 0)
        json_read(doc, NULL, fields, ARRAY_SIZE(fields), NULL);
    return bytes;
}

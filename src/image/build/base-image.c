#include "image/build/base-image.h"

#include <string.h>

#include "image/build/config-json.h"
#include "image/build/history.h"
#include "image/oci/manifest.h"
#include "image/oci/reference.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

void base_image_done(struct base_image *b)
{
    strv_free(b->layers);
    free(b->created);
    *b = (struct base_image){0};
}

static int base_image_read_config(const struct images *s, const char *id, json_t **ret,
                                  struct err *err)
{
    _cleanup_free_ char *path = xasprintf("blobs/%s", digest_hex(id)), *text = NULL;
    size_t len;
    int r;

    r = file_read(s->dir, path, IMAGES_CONFIG_MAX, &text, &len, err);
    if (r < 0)
        return r;
    return json_parse("the image's configuration", text, len, ret, err);
}

char *base_image_name(const char *written)
{
    const char *at = strchr(written, '@');
    _cleanup_free_ char *name = NULL;
    char *tag;

    if (!at || !digest_is_valid(at + 1))
        return xstrdup(written);
    name = xstrndup(written, (size_t)(at - written));
    tag = strchr(strrchr(name, '/') ?: name, ':');
    if (tag)
        *tag = '\0';
    return xasprintf("%s:sha256-%s", name, digest_hex(at + 1));
}

static int base_image_read_host(const struct images *s, struct base_image *ret,
                                struct dockerfile_config *ret_config, struct err *err)
{
    static const char path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

    if (!*s->host)
        return err_set(err, ERR_SYSTEM, "image 'host': the daemon did not give its location");
    if (ret) {
        *ret = (struct base_image){0};
        strv_add(&ret->layers, IMAGES_HOST_LAYER);
    }
    if (ret_config) {
        strv_env_set(&ret_config->env, "PATH", path);
        strv_env_set(&ret_config->scope, "PATH", path);
    }
    return 0;
}

static int base_image_read_documents(const struct images *s, struct base_image *b,
                                     struct dockerfile_config *ret_config, struct err *err)
{
    _cleanup_json_ json_t *record = NULL, *config = NULL;
    const char *created;
    int r;

    r = images_read(s, b->id, &record, err);
    if (r < 0)
        return r;
    r = images_layers(record, &b->layers, err);
    if (r < 0)
        return r;
    if (ret_config) {
        r = base_image_read_config(s, b->id, &config, err);
        if (r < 0)
            return r;
        config_json_read(config, ret_config);
    }
    created = json_string_value(json_object_get(record, "created"));
    b->created = created ? xstrdup(created) : NULL;
    return 0;
}

static int base_image_read_stored(const struct images *s, const char *name, struct base_image *ret,
                                  struct dockerfile_config *ret_config, struct err *err)
{
    _cleanup_base_image_ struct base_image b = {0};
    _cleanup_free_ char *local = base_image_name(name);
    int r = images_resolve(s, local, b.id, err);

    if (r == -ERR_NOT_FOUND) {
        if (err)
            err_done(err);
        err_set(err, ERR_NOT_FOUND, "image '%.200s' is not in the store", name);
        return err_hint(err, "Bring it in with `ripcord image pull` or `ripcord image import`.");
    }
    if (r >= 0)
        r = base_image_read_documents(s, &b, ret_config, err);
    if (r < 0)
        return err_wrap(err, "image '%.200s'", name);
    if (ret) {
        *ret = b;
        b = (struct base_image){0};
    }
    return 0;
}

int base_image_read(const struct images *s, const char *name, struct base_image *ret,
                    struct dockerfile_config *ret_config, struct err *err)
{
    return reference_is_host(name) ? base_image_read_host(s, ret, ret_config, err)
                                   : base_image_read_stored(s, name, ret, ret_config, err);
}

int base_image_history(const struct images *s, const struct base_image *b, json_t **ret,
                       struct err *err)
{
    size_t stored = strv_len(b->layers) - images_begin_with_host(b->layers);
    _cleanup_json_ json_t *config = NULL;
    int r;

    if (*b->id) {
        r = base_image_read_config(s, b->id, &config, err);
        if (r < 0)
            return r;
    }
    *ret = history_of_base(json_object_get(config, "history"), stored);
    return 0;
}

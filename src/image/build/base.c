#include "image/build/base.h"

#include <string.h>

#include "image/build/history.h"
#include "image/oci/manifest.h"
#include "image/oci/reference.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

void base_done(struct base *b)
{
    strv_free(b->layers);
    free(b->created);
    *b = (struct base){0};
}

/* ---- from JSON ---- */

static char **base_texts(const json_t *config, const char *key)
{
    const json_t *list = json_object_get(config, key), *v;
    char **ret = NULL;
    size_t i;

    json_array_foreach (list, i, v)
        if (json_is_string(v))
            strv_add(&ret, json_string_value(v));
    return json_is_array(list) && !ret ? strv_copy(NULL) : ret;
}

static char *base_text(const json_t *config, const char *key)
{
    const char *s = json_string_value(json_object_get(config, key));

    return s && *s ? xstrdup(s) : NULL;
}

/* {"80/tcp": {}}: the keys. */
static char **base_keys(const json_t *config, const char *key)
{
    json_t *map = json_object_get(config, key), *v;
    const char *k;
    char **ret = NULL;

    json_object_foreach (map, k, v)
        strv_add(&ret, k);
    return ret;
}

static char **base_pairs(const json_t *config, const char *key)
{
    json_t *map = json_object_get(config, key), *v;
    const char *k;
    char **ret = NULL;

    json_object_foreach (map, k, v)
        if (json_is_string(v))
            strv_env_set(&ret, k, json_string_value(v));
    return ret;
}

static void base_read_health(const json_t *config, struct config_health *ret)
{
    const json_t *h = json_object_get(config, "Healthcheck");

    if (!json_is_object(h))
        return;
    ret->test = base_texts(h, "Test");
    ret->interval = json_integer_value(json_object_get(h, "Interval"));
    ret->timeout = json_integer_value(json_object_get(h, "Timeout"));
    ret->start_period = json_integer_value(json_object_get(h, "StartPeriod"));
    ret->start_interval = json_integer_value(json_object_get(h, "StartInterval"));
    ret->retries = (int)json_integer_value(json_object_get(h, "Retries"));
}

static char **base_nothing_if_empty(char **v)
{
    return v && !*v ? strv_free(v) : v;
}

static void base_read_config(const json_t *doc, struct dockerfile_config *ret)
{
    const json_t *config = json_object_get(doc, "config");

    ret->env = base_texts(config, "Env");
    ret->scope = strv_copy(ret->env);
    ret->labels = base_pairs(config, "Labels");
    ret->cmd = base_nothing_if_empty(base_texts(config, "Cmd"));
    ret->entrypoint = base_nothing_if_empty(base_texts(config, "Entrypoint"));
    ret->shell = base_nothing_if_empty(base_texts(config, "Shell"));
    ret->ports = base_keys(config, "ExposedPorts");
    ret->volumes = base_keys(config, "Volumes");
    ret->triggers = base_texts(config, "OnBuild");
    ret->user = base_text(config, "User");
    ret->workdir = base_text(config, "WorkingDir");
    ret->stop_signal = base_text(config, "StopSignal");
    ret->author = base_text(doc, "author");
    base_read_health(config, &ret->health);
}

int base_config_parse(const char *text, size_t len, struct dockerfile_config *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = json_parse("the image's configuration", text, len, &doc, err);

    if (r >= 0)
        base_read_config(doc, ret);
    return r;
}

static int base_read_blob(const struct images *s, const char *id, json_t **ret, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("blobs/%s", digest_hex(id)), *text = NULL;
    size_t len;
    int r = file_read(s->dir, path, IMAGES_BLOB_MAX, &text, &len, err);

    return r < 0 ? r : json_parse("the image's configuration", text, len, ret, err);
}

/* ---- from the store ---- */

char *base_name(const char *written)
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

static int base_not_there(const char *name, struct err *err)
{
    err_set(err, ERR_NOT_FOUND, "image '%.200s' is not in the store", name);
    return err_hint(err, "Bring it in with `ripcord image pull` or `ripcord image import`.");
}

static int base_read_host(const struct images *s, struct base *ret,
                          struct dockerfile_config *ret_config, struct err *err)
{
    static const char path[] = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

    if (!*s->host)
        return err_set(err, ERR_SYSTEM, "it is not known where image 'host' lies");
    if (ret) {
        *ret = (struct base){0};
        strv_add(&ret->layers, IMAGES_HOST_LAYER);
    }
    if (ret_config) {
        strv_env_set(&ret_config->env, "PATH", path);
        strv_env_set(&ret_config->scope, "PATH", path);
    }
    return 0;
}

static int base_read_stored(const struct images *s, const char *name, struct base *ret,
                            struct dockerfile_config *ret_config, struct err *err)
{
    _cleanup_base_ struct base b = {0};
    _cleanup_json_ json_t *record = NULL, *config = NULL;
    _cleanup_free_ char *local = base_name(name);
    const char *created;
    int r = images_resolve(s, local, b.id, err);

    if (r == -ERR_NOT_FOUND) {
        if (err)
            err_done(err);
        return base_not_there(name, err);
    }
    if (r >= 0)
        r = images_read(s, b.id, &record, err);
    if (r >= 0)
        r = images_layers(record, &b.layers, err);
    if (r >= 0 && ret_config)
        r = base_read_blob(s, b.id, &config, err);
    if (r < 0)
        return err_wrap(err, "image '%.200s'", name);
    if (ret_config)
        base_read_config(config, ret_config);
    created = json_string_value(json_object_get(record, "created"));
    b.created = created ? xstrdup(created) : NULL;
    if (ret) {
        *ret = b;
        b = (struct base){0};
    }
    return 0;
}

int base_read(const struct images *s, const char *name, struct base *ret,
              struct dockerfile_config *ret_config, struct err *err)
{
    return reference_is_host(name) ? base_read_host(s, ret, ret_config, err)
                                   : base_read_stored(s, name, ret, ret_config, err);
}

int base_history(const struct images *s, const struct base *b, json_t **ret, struct err *err)
{
    size_t stored = strv_len(b->layers) - images_begin_with_host(b->layers);
    _cleanup_json_ json_t *config = NULL;
    int r = *b->id ? base_read_blob(s, b->id, &config, err) : 0;

    if (r >= 0)
        *ret = history_of_base(json_object_get(config, "history"), stored);
    return r;
}

/* ---- to JSON ---- */

static void base_put_text(json_t *to, const char *key, const char *value)
{
    if (value && *value)
        json_object_set_new(to, key, json_string(value));
}

static void base_put_texts(json_t *to, const char *key, char *const *v)
{
    json_t *list;

    if (!v)
        return;
    list = json_array();
    for (; *v; v++)
        json_array_append_new(list, json_string(*v));
    json_object_set_new(to, key, list);
}

static void base_put_keys(json_t *to, const char *key, char *const *v)
{
    json_t *map;

    if (!v || !*v)
        return;
    map = json_object();
    for (; *v; v++)
        json_object_set_new(map, *v, json_object());
    json_object_set_new(to, key, map);
}

static void base_put_pairs(json_t *to, const char *key, char *const *v)
{
    json_t *map;

    if (!v || !*v)
        return;
    map = json_object();
    for (; *v; v++) {
        const char *equals = strchr(*v, '=');
        _cleanup_free_ char *name = xstrndup(*v, (size_t)(equals - *v));

        json_object_set_new(map, name, json_string(equals + 1));
    }
    json_object_set_new(to, key, map);
}

static void base_put_time(json_t *to, const char *key, int64_t ns)
{
    if (ns)
        json_object_set_new(to, key, json_integer(ns));
}

static void base_put_health(json_t *to, const struct config_health *h)
{
    json_t *doc;

    if (!h->test)
        return;
    doc = json_object();
    base_put_texts(doc, "Test", h->test);
    base_put_time(doc, "Interval", h->interval);
    base_put_time(doc, "Timeout", h->timeout);
    base_put_time(doc, "StartPeriod", h->start_period);
    base_put_time(doc, "StartInterval", h->start_interval);
    base_put_time(doc, "Retries", h->retries);
    json_object_set_new(to, "Healthcheck", doc);
}

static json_t *base_config_json(const struct dockerfile_config *c)
{
    json_t *to = json_object();

    base_put_texts(to, "Env", c->env);
    base_put_pairs(to, "Labels", c->labels);
    base_put_texts(to, "Cmd", c->cmd);
    base_put_texts(to, "Entrypoint", c->entrypoint);
    base_put_texts(to, "Shell", c->shell);
    base_put_keys(to, "ExposedPorts", c->ports);
    base_put_keys(to, "Volumes", c->volumes);
    base_put_texts(to, "OnBuild", c->triggers);
    base_put_text(to, "User", c->user);
    base_put_text(to, "WorkingDir", c->workdir);
    base_put_text(to, "StopSignal", c->stop_signal);
    base_put_health(to, &c->health);
    return to;
}

char *base_config_text(const struct dockerfile_config *c, char *const *layers, const char *created,
                       const json_t *history)
{
    _cleanup_json_ json_t *doc = json_object();
    json_t *rootfs = json_object(), *diff_ids = json_array();

    base_put_text(doc, "architecture", image_config_architecture());
    base_put_text(doc, "os", "linux");
    base_put_text(doc, "created", created);
    base_put_text(doc, "author", c->author);
    if (images_begin_with_host(layers))
        base_put_text(doc, IMAGE_CONFIG_BASE, *layers++);
    json_object_set_new(doc, "config", base_config_json(c));
    if (history)
        json_object_set(doc, "history", (json_t *)history);
    for (; layers && *layers; layers++)
        json_array_append_new(diff_ids, json_string(*layers));
    base_put_text(rootfs, "type", "layers");
    json_object_set_new(rootfs, "diff_ids", diff_ids);
    json_object_set_new(doc, "rootfs", rootfs);
    return json_to_text(doc, true);
}

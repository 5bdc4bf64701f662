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

static char **texts(const json_t *config, const char *key)
{
    const json_t *list = json_object_get(config, key), *v;
    char **ret = NULL;
    size_t i;

    json_array_foreach (list, i, v)
        if (json_is_string(v))
            strv_add(&ret, json_string_value(v));
    return json_is_array(list) && !ret ? strv_copy(NULL) : ret;
}

static char *text(const json_t *config, const char *key)
{
    const char *s = json_string_value(json_object_get(config, key));

    return s && *s ? xstrdup(s) : NULL;
}

/* {"80/tcp": {}}: the keys. */
static char **keys(const json_t *config, const char *key)
{
    json_t *map = json_object_get(config, key), *v;
    const char *k;
    char **ret = NULL;

    json_object_foreach (map, k, v)
        strv_add(&ret, k);
    return ret;
}

static char **pairs(const json_t *config, const char *key)
{
    json_t *map = json_object_get(config, key), *v;
    const char *k;
    char **ret = NULL;

    json_object_foreach (map, k, v)
        if (json_is_string(v))
            strv_env_set(&ret, k, json_string_value(v));
    return ret;
}

static void read_health(const json_t *config, struct config_health *ret)
{
    const json_t *h = json_object_get(config, "Healthcheck");

    if (!json_is_object(h))
        return;
    ret->test = texts(h, "Test");
    ret->interval = json_integer_value(json_object_get(h, "Interval"));
    ret->timeout = json_integer_value(json_object_get(h, "Timeout"));
    ret->start_period = json_integer_value(json_object_get(h, "StartPeriod"));
    ret->start_interval = json_integer_value(json_object_get(h, "StartInterval"));
    ret->retries = (int)json_integer_value(json_object_get(h, "Retries"));
}

static char **nothing_if_empty(char **v)
{
    return v && !*v ? strv_free(v) : v;
}

static void read_config(const json_t *doc, struct config *ret)
{
    const json_t *config = json_object_get(doc, "config");

    ret->env = texts(config, "Env");
    ret->scope = strv_copy(ret->env);
    ret->labels = pairs(config, "Labels");
    ret->cmd = nothing_if_empty(texts(config, "Cmd"));
    ret->entrypoint = nothing_if_empty(texts(config, "Entrypoint"));
    ret->shell = nothing_if_empty(texts(config, "Shell"));
    ret->ports = keys(config, "ExposedPorts");
    ret->volumes = keys(config, "Volumes");
    ret->triggers = texts(config, "OnBuild");
    ret->user = text(config, "User");
    ret->workdir = text(config, "WorkingDir");
    ret->stop_signal = text(config, "StopSignal");
    ret->author = text(doc, "author");
    read_health(config, &ret->health);
}

int base_config_parse(const char *text, size_t len, struct config *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = json_parse("the image's configuration", text, len, &doc, err);

    if (r >= 0)
        read_config(doc, ret);
    return r;
}

static int read_blob(const struct images *s, const char *id, json_t **ret, struct err *err)
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

static int not_there(const char *name, struct err *err)
{
    err_set(err, ERR_NOT_FOUND, "image '%.200s' is not in the store", name);
    return err_hint(err, "Bring it in with `ripcord image pull` or `ripcord image import`.");
}

static int read_host(const struct images *s, struct base *ret, struct config *ret_config,
                     struct err *err)
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

static int read_stored(const struct images *s, const char *name, struct base *ret,
                       struct config *ret_config, struct err *err)
{
    _cleanup_base_ struct base b = {0};
    _cleanup_json_ json_t *record = NULL, *config = NULL;
    _cleanup_free_ char *local = base_name(name);
    const char *created;
    int r = images_resolve(s, local, b.id, err);

    if (r == -ERR_NOT_FOUND) {
        if (err)
            err_done(err);
        return not_there(name, err);
    }
    if (r >= 0)
        r = images_read(s, b.id, &record, err);
    if (r >= 0)
        r = images_layers(record, &b.layers, err);
    if (r >= 0 && ret_config)
        r = read_blob(s, b.id, &config, err);
    if (r < 0)
        return err_wrap(err, "image '%.200s'", name);
    if (ret_config)
        read_config(config, ret_config);
    created = json_string_value(json_object_get(record, "created"));
    b.created = created ? xstrdup(created) : NULL;
    if (ret) {
        *ret = b;
        b = (struct base){0};
    }
    return 0;
}

int base_read(const struct images *s, const char *name, struct base *ret, struct config *ret_config,
              struct err *err)
{
    return reference_is_host(name) ? read_host(s, ret, ret_config, err)
                                   : read_stored(s, name, ret, ret_config, err);
}

int base_history(const struct images *s, const struct base *b, json_t **ret, struct err *err)
{
    size_t stored = strv_len(b->layers) - images_begin_with_host(b->layers);
    _cleanup_json_ json_t *config = NULL;
    int r = *b->id ? read_blob(s, b->id, &config, err) : 0;

    if (r >= 0)
        *ret = history_of_base(json_object_get(config, "history"), stored);
    return r;
}

/* ---- to JSON ---- */

static void put_text(json_t *to, const char *key, const char *value)
{
    if (value && *value)
        json_object_set_new(to, key, json_string(value));
}

static void put_texts(json_t *to, const char *key, char *const *v)
{
    json_t *list;

    if (!v)
        return;
    list = json_array();
    for (; *v; v++)
        json_array_append_new(list, json_string(*v));
    json_object_set_new(to, key, list);
}

static void put_keys(json_t *to, const char *key, char *const *v)
{
    json_t *map;

    if (!v || !*v)
        return;
    map = json_object();
    for (; *v; v++)
        json_object_set_new(map, *v, json_object());
    json_object_set_new(to, key, map);
}

static void put_pairs(json_t *to, const char *key, char *const *v)
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

static void put_time(json_t *to, const char *key, int64_t ns)
{
    if (ns)
        json_object_set_new(to, key, json_integer(ns));
}

static void put_health(json_t *to, const struct config_health *h)
{
    json_t *doc;

    if (!h->test)
        return;
    doc = json_object();
    put_texts(doc, "Test", h->test);
    put_time(doc, "Interval", h->interval);
    put_time(doc, "Timeout", h->timeout);
    put_time(doc, "StartPeriod", h->start_period);
    put_time(doc, "StartInterval", h->start_interval);
    put_time(doc, "Retries", h->retries);
    json_object_set_new(to, "Healthcheck", doc);
}

static json_t *config_json(const struct config *c)
{
    json_t *to = json_object();

    put_texts(to, "Env", c->env);
    put_pairs(to, "Labels", c->labels);
    put_texts(to, "Cmd", c->cmd);
    put_texts(to, "Entrypoint", c->entrypoint);
    put_texts(to, "Shell", c->shell);
    put_keys(to, "ExposedPorts", c->ports);
    put_keys(to, "Volumes", c->volumes);
    put_texts(to, "OnBuild", c->triggers);
    put_text(to, "User", c->user);
    put_text(to, "WorkingDir", c->workdir);
    put_text(to, "StopSignal", c->stop_signal);
    put_health(to, &c->health);
    return to;
}

char *base_config_text(const struct config *c, char *const *layers, const char *created,
                       const json_t *history)
{
    _cleanup_json_ json_t *doc = json_object();
    json_t *rootfs = json_object(), *diff_ids = json_array();

    put_text(doc, "architecture", image_config_architecture());
    put_text(doc, "os", "linux");
    put_text(doc, "created", created);
    put_text(doc, "author", c->author);
    if (images_begin_with_host(layers))
        put_text(doc, IMAGE_CONFIG_BASE, *layers++);
    json_object_set_new(doc, "config", config_json(c));
    if (history)
        json_object_set(doc, "history", (json_t *)history);
    for (; layers && *layers; layers++)
        json_array_append_new(diff_ids, json_string(*layers));
    put_text(rootfs, "type", "layers");
    json_object_set_new(rootfs, "diff_ids", diff_ids);
    json_object_set_new(doc, "rootfs", rootfs);
    return json_to_text(doc, true);
}

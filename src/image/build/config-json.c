#include "image/build/config-json.h"

#include <string.h>

#include "image/oci/manifest.h"
#include "image/store/images.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

/* ---- from JSON ---- */

static char **config_json_texts(const json_t *config, const char *key)
{
    const json_t *list = json_object_get(config, key), *v;
    char **ret = NULL;
    size_t i;

    json_array_foreach (list, i, v)
        if (json_is_string(v))
            strv_add(&ret, json_string_value(v));
    return json_is_array(list) && !ret ? strv_copy(NULL) : ret;
}

static char *config_json_text_of(const json_t *config, const char *key)
{
    const char *s = json_string_value(json_object_get(config, key));

    return s && *s ? xstrdup(s) : NULL;
}

/* {"80/tcp": {}}: the keys. */
static char **config_json_keys(const json_t *config, const char *key)
{
    json_t *map = json_object_get(config, key), *v;
    const char *k;
    char **ret = NULL;

    json_object_foreach (map, k, v)
        strv_add(&ret, k);
    return ret;
}

static char **config_json_pairs(const json_t *config, const char *key)
{
    json_t *map = json_object_get(config, key), *v;
    const char *k;
    char **ret = NULL;

    json_object_foreach (map, k, v)
        if (json_is_string(v))
            strv_env_set(&ret, k, json_string_value(v));
    return ret;
}

static void config_json_read_health(const json_t *config, struct config_health *ret)
{
    const json_t *h = json_object_get(config, "Healthcheck");

    if (!json_is_object(h))
        return;
    ret->test = config_json_texts(h, "Test");
    ret->interval = json_integer_value(json_object_get(h, "Interval"));
    ret->timeout = json_integer_value(json_object_get(h, "Timeout"));
    ret->start_period = json_integer_value(json_object_get(h, "StartPeriod"));
    ret->start_interval = json_integer_value(json_object_get(h, "StartInterval"));
    ret->retries = (int)json_integer_value(json_object_get(h, "Retries"));
}

static char **config_json_null_if_empty(char **v)
{
    return v && !*v ? strv_free(v) : v;
}

void config_json_read(const json_t *doc, struct dockerfile_config *ret)
{
    const json_t *config = json_object_get(doc, "config");

    ret->env = config_json_texts(config, "Env");
    ret->scope = strv_copy(ret->env);
    ret->labels = config_json_pairs(config, "Labels");
    ret->cmd = config_json_null_if_empty(config_json_texts(config, "Cmd"));
    ret->entrypoint = config_json_null_if_empty(config_json_texts(config, "Entrypoint"));
    ret->shell = config_json_null_if_empty(config_json_texts(config, "Shell"));
    ret->ports = config_json_keys(config, "ExposedPorts");
    ret->volumes = config_json_keys(config, "Volumes");
    ret->triggers = config_json_texts(config, "OnBuild");
    ret->user = config_json_text_of(config, "User");
    ret->workdir = config_json_text_of(config, "WorkingDir");
    ret->stop_signal = config_json_text_of(config, "StopSignal");
    ret->author = config_json_text_of(doc, "author");
    config_json_read_health(config, &ret->health);
}

int config_json_parse(const char *text, size_t len, struct dockerfile_config *ret, struct err *err)
{
    _cleanup_json_ json_t *doc = NULL;
    int r = json_parse("the image's configuration", text, len, &doc, err);

    if (r < 0)
        return r;
    config_json_read(doc, ret);
    return 0;
}

/* ---- to JSON ---- */

static void config_json_put_text(json_t *to, const char *key, const char *value)
{
    if (value && *value)
        json_object_set_new(to, key, json_string(value));
}

static void config_json_put_texts(json_t *to, const char *key, char *const *v)
{
    if (v)
        json_object_set_new(to, key, json_from_strv(v));
}

static void config_json_put_keys(json_t *to, const char *key, char *const *v)
{
    json_t *map;

    if (!v || !*v)
        return;
    map = json_object();
    for (; *v; v++)
        json_object_set_new(map, *v, json_object());
    json_object_set_new(to, key, map);
}

static void config_json_put_pairs(json_t *to, const char *key, char *const *v)
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

static void config_json_put_number(json_t *to, const char *key, int64_t ns)
{
    if (ns)
        json_object_set_new(to, key, json_integer(ns));
}

static void config_json_put_health(json_t *to, const struct config_health *h)
{
    json_t *doc;

    if (!h->test)
        return;
    doc = json_object();
    config_json_put_texts(doc, "Test", h->test);
    config_json_put_number(doc, "Interval", h->interval);
    config_json_put_number(doc, "Timeout", h->timeout);
    config_json_put_number(doc, "StartPeriod", h->start_period);
    config_json_put_number(doc, "StartInterval", h->start_interval);
    config_json_put_number(doc, "Retries", h->retries);
    json_object_set_new(to, "Healthcheck", doc);
}

static json_t *config_json_object(const struct dockerfile_config *c)
{
    json_t *to = json_object();

    config_json_put_texts(to, "Env", c->env);
    config_json_put_pairs(to, "Labels", c->labels);
    config_json_put_texts(to, "Cmd", c->cmd);
    config_json_put_texts(to, "Entrypoint", c->entrypoint);
    config_json_put_texts(to, "Shell", c->shell);
    config_json_put_keys(to, "ExposedPorts", c->ports);
    config_json_put_keys(to, "Volumes", c->volumes);
    config_json_put_texts(to, "OnBuild", c->triggers);
    config_json_put_text(to, "User", c->user);
    config_json_put_text(to, "WorkingDir", c->workdir);
    config_json_put_text(to, "StopSignal", c->stop_signal);
    config_json_put_health(to, &c->health);
    return to;
}

char *config_json_text(const struct dockerfile_config *c, char *const *layers, const char *created,
                       const json_t *history)
{
    _cleanup_json_ json_t *doc = json_object();
    json_t *rootfs = json_object(), *diff_ids = json_array();

    config_json_put_text(doc, "architecture", image_config_architecture());
    config_json_put_text(doc, "os", "linux");
    config_json_put_text(doc, "created", created);
    config_json_put_text(doc, "author", c->author);
    if (images_begin_with_host(layers))
        config_json_put_text(doc, IMAGE_CONFIG_BASE, *layers++);
    json_object_set_new(doc, "config", config_json_object(c));
    if (history)
        json_object_set(doc, "history", (json_t *)history);
    for (; layers && *layers; layers++)
        json_array_append_new(diff_ids, json_string(*layers));
    config_json_put_text(rootfs, "type", "layers");
    json_object_set_new(rootfs, "diff_ids", diff_ids);
    json_object_set_new(doc, "rootfs", rootfs);
    return json_to_text(doc, true);
}

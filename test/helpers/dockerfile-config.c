/*
 * Prints the result of our Dockerfile parser as JSON: the configuration of the target in the form
 * of the OCI image specification, or the error and its place. test/dockerfile compares it with
 * BuildKit.
 *
 *   dockerfile-config FILE [TARGET|-] [NAME=VALUE...]
 */
#include <fcntl.h>
#include <string.h>

#include "image/dockerfile/config.h"
#include "lib/base/fd.h"
#include "lib/base/json.h"
#include "lib/base/strv.h"

static json_t *strings(char *const *v)
{
    json_t *array = json_array();

    for (; v && *v; v++)
        json_array_append_new(array, json_string(*v));
    return array;
}

static json_t *keys(char *const *v)
{
    json_t *object = json_object();

    for (; v && *v; v++)
        json_object_set_new(object, *v, json_object());
    return object;
}

static json_t *pairs(char *const *v)
{
    json_t *object = json_object();

    for (; v && *v; v++) {
        const char *equals = strchr(*v, '=');

        json_object_setn_new(object, *v, (size_t)(equals - *v), json_string(equals + 1));
    }
    return object;
}

static void put(json_t *doc, const char *key, json_t *value, bool wanted)
{
    if (wanted)
        json_object_set_new(doc, key, value);
    else
        json_decref(value);
}

static void put_text(json_t *doc, const char *key, const char *value)
{
    put(doc, key, json_string(value ? value : ""), value && *value);
}

static json_t *health(const struct config_health *h)
{
    json_t *doc = json_object();

    put(doc, "Test", strings(h->test), true);
    put(doc, "Interval", json_integer(h->interval), h->interval);
    put(doc, "Timeout", json_integer(h->timeout), h->timeout);
    put(doc, "StartPeriod", json_integer(h->start_period), h->start_period);
    put(doc, "StartInterval", json_integer(h->start_interval), h->start_interval);
    put(doc, "Retries", json_integer(h->retries), h->retries);
    return doc;
}

static json_t *config_json(const struct dockerfile_config *c)
{
    json_t *doc = json_object();

    put(doc, "Env", strings(c->env), c->env);
    put(doc, "Cmd", strings(c->cmd), c->cmd);
    put(doc, "Entrypoint", strings(c->entrypoint), c->entrypoint && *c->entrypoint);
    put(doc, "Shell", strings(c->shell), c->shell);
    put(doc, "Labels", pairs(c->labels), c->labels);
    put(doc, "ExposedPorts", keys(c->ports), c->ports);
    put(doc, "Volumes", keys(c->volumes), c->volumes);
    put(doc, "OnBuild", strings(c->triggers), c->triggers);
    put(doc, "Healthcheck", health(&c->health), c->health.test);
    put_text(doc, "User", c->user);
    put_text(doc, "WorkingDir", c->workdir);
    put_text(doc, "StopSignal", c->stop_signal);
    return doc;
}

static json_t *answer(const char *text, size_t len, const struct config_inputs *inputs,
                      struct err *err)
{
    _cleanup_(dockerfile_freep) struct dockerfile *df = NULL;
    struct dockerfile_config c = {0};
    json_t *doc;
    int r = dockerfile_parse(text, len, &df, NULL, err);

    if (r >= 0)
        r = config_evaluate(df, inputs, &c, NULL, err);
    if (r < 0)
        return json_pack("{ss}", "error", err->msg);
    doc = json_pack("{so}", "config", config_json(&c));
    put_text(doc, "author", c.author);
    config_done(&c);
    return doc;
}

int main(int argc, char **argv)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct config_inputs inputs = {0};
    char *text = NULL;
    size_t len;
    json_t *doc;

    if (argc < 2 || file_read(AT_FDCWD, argv[1], 64 << 20, &text, &len, &err) < 0) {
        fprintf(stderr, "dockerfile-config: %s\n", err.msg ? err.msg : "no file");
        return 2;
    }
    if (argc > 2 && strcmp(argv[2], "-") != 0)
        inputs.target = argv[2];
    if (argc > 3)
        inputs.build_args = argv + 3;
    doc = answer(text, len, &inputs, &err);
    json_dumpf(doc, stdout, JSON_COMPACT | JSON_SORT_KEYS);
    putchar('\n');
    json_decref(doc);
    free(text);
    return 0;
}

/*
 * The spec as JSON, its stored form and its hash. The stored form is the document of the API plus
 * "asked" and "image_digest", so that one parser reads both.
 */
#include <assert.h>
#include <openssl/sha.h>
#include <string.h>

#include "daemon/core/sandbox/spec.h"
#include "daemon/engine/caches.h"
#include "lib/base/cleanup.h"
#include "lib/base/json-put.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"

/* clang-format off */
static const struct { uint32_t bit; const char *name; } limit_names[] = {
    {LIMIT_MEMORY, "memory"}, {LIMIT_CPUS, "cpus"}, {LIMIT_PIDS, "pids"},
    {LIMIT_DISK, "disk"},     {LIMIT_NOFILE, "nofile"},
    {LIMIT_DISK_BUDGET, "disk_budget"},
};
/* clang-format on */

json_t *spec_limit_names(uint32_t bits)
{
    json_t *a = json_array();

    for (size_t i = 0; i < ARRAY_SIZE(limit_names); i++)
        if (bits & limit_names[i].bit)
            json_array_append_new(a, json_string(limit_names[i].name));
    return a;
}

void spec_put_limit_names(struct buf *b, const char *key, uint32_t bits)
{
    json_put_open(b, key, '[');
    for (size_t i = 0; i < ARRAY_SIZE(limit_names); i++)
        if (bits & limit_names[i].bit)
            json_put_string(b, NULL, limit_names[i].name);
    json_put_close(b, ']');
}

/* Without zeros at the end: 2, not 2.0, so that one value has one canonical text. */
static void spec_json_put_cpus(struct buf *b, const struct sandbox_spec *spec)
{
    char text[32];
    int n = snprintf(text, sizeof(text), "%.3f", spec->cpu_milli / 1000.0);

    while (text[n - 1] == '0')
        n--;
    if (text[n - 1] == '.')
        n--;
    text[n] = '\0';
    json_put_raw(b, "cpus", text);
}

void spec_put_limits(struct buf *b, const struct sandbox_spec *spec)
{
    json_put_open(b, "limits", '{');
    json_put_number(b, "memory", spec->memory);
    spec_json_put_cpus(b, spec);
    json_put_number(b, "pids", spec->pids);
    if (spec->disk)
        json_put_number(b, "disk", spec->disk);
    json_put_number(b, "nofile", spec->nofile);
    json_put_close(b, '}');
}

static void spec_json_put_pairs(struct buf *b, const char *key, char *const *v)
{
    json_put_open(b, key, '{');
    for (; v && *v; v++) {
        const char *eq = strchr(*v, '=');
        _cleanup_free_ char *name = xstrndup(*v, (size_t)(eq - *v));

        json_put_string(b, name, eq + 1);
    }
    json_put_close(b, '}');
}

static void spec_json_put_mounts(struct buf *b, const struct sandbox_spec *spec)
{
    json_put_open(b, "mounts", '[');
    for (size_t i = 0; i < spec->n_mounts; i++) {
        const struct spec_mount *m = &spec->mounts[i];

        json_put_open(b, NULL, '{');
        json_put_string(b, "source", m->source);
        json_put_string(b, "target", m->target);
        json_put_bool(b, "read_only", m->read_only);
        if (m->no_root_squash) /* the default is left out, as for `isolation` */
            json_put_bool(b, "no_root_squash", true);
        json_put_close(b, '}');
    }
    json_put_close(b, ']');
}

static void spec_json_put_ports(struct buf *b, const struct sandbox_spec *spec)
{
    json_put_open(b, "ports", '[');
    for (size_t i = 0; i < spec->n_ports; i++)
        json_put_number(b, NULL, spec->ports[i]);
    json_put_close(b, ']');
}

static void spec_json_put_tmpfs(struct buf *b, const struct sandbox_spec *spec)
{
    json_put_open(b, "tmpfs", '{');
    json_put_number(b, "tmp", spec->tmp_size);
    json_put_number(b, "run", spec->run_size);
    json_put_number(b, "scratch", spec->scratch_size);
    json_put_close(b, '}');
}

const char *spec_cache_mode_name(enum spec_cache_mode m)
{
    return cache_mode_name(m);
}

static void spec_json_put_caches(struct buf *b, const struct sandbox_spec *spec)
{
    json_put_open(b, "caches", '{');
    if (spec->cache_mode != CACHE_LAYERED)
        json_put_string(b, CACHE_ALL, cache_mode_name(spec->cache_mode));
    for (size_t i = 0; i < spec->n_caches; i++) {
        const struct spec_cache *c = &spec->caches[i];
        _cleanup_free_ char *mode = xasprintf("%s%s%s", cache_mode_name(c->mode),
                                              c->group ? ":" : "", c->group ? c->group : "");

        json_put_string(b, c->tool, mode);
    }
    json_put_close(b, '}');
}

static void spec_json_put_leases(struct buf *b, const struct sandbox_spec *spec)
{
    json_put_number(b, "idle_stop_ms", spec->idle_stop / USEC_PER_MSEC);
    json_put_number(b, "max_life_ms", spec->max_life / USEC_PER_MSEC);
    json_put_number(b, "rm_after_ms", spec->rm_after / USEC_PER_MSEC);
}

void spec_put(struct buf *b, const char *key, const struct sandbox_spec *spec, const char *engine,
              bool env)
{
    json_put_open(b, key, '{');
    if (engine)
        json_put_string(b, "engine", engine);
    json_put_string(b, "image", spec->image);
    json_put_string(b, "runtime", spec->runtime);
    spec_json_put_caches(b, spec);
    spec_put_limits(b, spec);
    json_put_string(b, "network", spec_network_name(spec->network));
    /* The default is left out, so that sandboxes made before this field existed keep their hash. */
    if (spec->isolation != SPEC_ISOLATION_SHARED)
        json_put_string(b, "isolation", spec_isolation_name(spec->isolation));
    if (sandbox_spec_is_confined(spec))
        spec_json_put_ports(b, spec);
    else
        spec_json_put_tmpfs(b, spec);
    json_put_string(b, "user", spec->user);
    json_put_string(b, "workdir", spec->workdir);
    if (env)
        spec_json_put_pairs(b, "env", spec->env);
    spec_json_put_pairs(b, "labels", spec->labels);
    spec_json_put_mounts(b, spec);
    spec_json_put_leases(b, spec);
    json_put_close(b, '}');
}

json_t *spec_to_json(const struct sandbox_spec *spec, const char *engine)
{
    _cleanup_buf_ struct buf b = JSON_PUT_INIT;
    json_t *o;

    spec_put(&b, NULL, spec, engine, true);
    o = json_loadb(buf_data(&b), b.len, 0, NULL);
    assert(o); /* it is our own text */
    return o;
}

static json_t *spec_json_pairs(char *const *v)
{
    json_t *o = json_object();

    for (; v && *v; v++) {
        const char *eq = strchr(*v, '=');

        json_object_setn_new(o, *v, (size_t)(eq - *v), json_string(eq + 1));
    }
    return o;
}

char *spec_to_text(const struct sandbox_spec *spec)
{
    _cleanup_json_ json_t *o = spec_to_json(spec, NULL);

    json_object_set_new(o, "asked", spec_limit_names(spec->asked));
    json_object_set_new(o, "image_digest", json_from_text(spec->image_digest));
    if (spec->hashed_labels)
        json_object_set_new(o, "hashed_labels", spec_json_pairs(spec->hashed_labels));
    return json_to_text(o, true);
}

static uint32_t spec_json_limit_bits(const json_t *names)
{
    uint32_t bits = 0;
    json_t *item;
    size_t i;

    json_array_foreach (names, i, item)
        for (size_t k = 0; k < ARRAY_SIZE(limit_names); k++)
            if (json_is_string(item) && STREQ(json_string_value(item), limit_names[k].name))
                bits |= limit_names[k].bit;
    return bits;
}

int spec_from_text(const char *text, struct sandbox_spec *ret, struct err *err)
{
    /* Mounts were checked when the spec was accepted; the present roots do not apply to it. */
    char *all[] = {(char *)"", NULL};
    _cleanup_json_ json_t *o = NULL;
    _cleanup_free_ char *digest = NULL;
    _cleanup_strv_ char **hashed = NULL;
    struct sandbox_spec spec;
    const char *engine = NULL;
    uint32_t asked;
    int r;

    r = json_parse("stored spec", text, strlen(text), &o, err);
    if (r < 0)
        return r;
    asked = spec_json_limit_bits(json_object_get(o, "asked"));
    json_object_del(o, "asked");
    if (json_is_string(json_object_get(o, "image_digest")))
        digest = xstrdup(json_string_value(json_object_get(o, "image_digest")));
    json_object_del(o, "image_digest");
    r = spec_labels_read(json_object_get(o, "hashed_labels"), &hashed, err);
    if (r < 0)
        return err_wrap(err, "stored spec");
    json_object_del(o, "hashed_labels");
    spec_defaults(&spec);
    r = spec_apply(&spec, &engine, o, all, err);
    if (r < 0) {
        sandbox_spec_done(&spec);
        return err_wrap(err, "stored spec");
    }
    spec.asked = asked;
    spec.image_digest = TAKE_PTR(digest);
    spec.hashed_labels = TAKE_PTR(hashed);
    *ret = spec;
    return 0;
}

/* Leases and labels are not part of the hash. idle_stop_ms is hashed as 0 and labels as those of
 * the creation, usually none, because older versions hashed them: existing sandboxes keep their
 * hash. */
static char *spec_json_hashed_text(const struct sandbox_spec *spec, const char *engine)
{
    _cleanup_json_ json_t *o = spec_to_json(spec, engine);

    json_object_set_new(o, "idle_stop_ms", json_integer(0));
    json_object_set_new(o, "labels", spec_json_pairs(spec->hashed_labels));
    json_object_del(o, "max_life_ms");
    json_object_del(o, "rm_after_ms");
    return json_to_text(o, true);
}

void spec_hash(const struct sandbox_spec *spec, const char *engine, char ret[static 65])
{
    _cleanup_free_ char *canonical = spec_json_hashed_text(spec, engine);
    int hardening =
        sandbox_spec_writes_to_host(spec) ? SPEC_HARDENING_VERSION_HOST : SPEC_HARDENING_VERSION;
    _cleanup_free_ char *text = xasprintf("%s\n%s\n%d\n", canonical,
                                          spec->image_digest ? spec->image_digest : "", hardening);
    unsigned char digest[SHA256_DIGEST_LENGTH];

    SHA256((const unsigned char *)text, strlen(text), digest);
    for (size_t i = 0; i < sizeof(digest); i++)
        snprintf(ret + 2 * i, 3, "%02x", digest[i]);
}

void spec_match_hash(struct sandbox_spec *spec, const char *engine, const char *hash)
{
    char now[SPEC_HASH_LEN + 1];

    if (!spec->labels || !spec->labels[0] || spec->hashed_labels)
        return;
    spec_hash(spec, engine, now);
    if (STREQ(now, hash))
        return;
    spec->hashed_labels = strv_copy(spec->labels);
    spec_hash(spec, engine, now);
    if (!STREQ(now, hash))
        strv_free(TAKE_PTR(spec->hashed_labels));
}

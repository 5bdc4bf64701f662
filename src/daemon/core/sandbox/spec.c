/*
 * JSON to spec. A patch is applied to a copy, which replaces the spec if every field is valid.
 */
#include "daemon/core/sandbox/spec.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>

#include "daemon/engine/caches.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

enum {
    SPEC_ENV_MAX = 256,
    SPEC_ENV_BYTES_MAX = 96 << 10, /* an exec message of the shim holds 192 KiB, argv included */
    SPEC_LABELS_MAX = 64,
    SPEC_LABEL_MAX = 1024,
    SPEC_MOUNTS_MAX = 32,
    SPEC_PATH_MAX = 4095,
    SPEC_IMAGE_MAX = 255,
    SPEC_RUNTIME_MAX = 64,
};

void spec_defaults(struct sandbox_spec *ret)
{
    *ret = (struct sandbox_spec){
        .memory = GIB(4),
        .cpu_milli = 2000,
        .pids = 300,
        .nofile = 16384,
        .network = SPEC_NETWORK_PACKAGES,
        .cache_mode = CACHE_LAYERED,
        .tmp_size = MIB(128),
        .run_size = MIB(32),
        .scratch_size = MIB(512),
        .user = xstrdup("agent"),
        .workdir = xstrdup("/home/agent"),
    };
}

static const char *const network_names[] = {"none", "packages", "open"};

const char *spec_network_name(enum spec_network n)
{
    return network_names[n];
}

int spec_network_parse(const char *s, enum spec_network *ret, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(network_names); i++) {
        if (STREQ(network_names[i], s)) {
            *ret = (enum spec_network)i;
            return 0;
        }
    }
    return err_set(err, ERR_INVALID, "unknown network mode '%s'; supported: none, packages, open",
                   s);
}

static const char *const isolation_names[] = {"shared", "strict"};

const char *spec_isolation_name(enum spec_isolation i)
{
    return isolation_names[i];
}

static int spec_apply_isolation(struct sandbox_spec *spec, const char *name, struct err *err)
{
    for (size_t i = 0; i < ARRAY_SIZE(isolation_names); i++) {
        if (!STREQ(isolation_names[i], name))
            continue;
        spec->isolation = (enum spec_isolation)i;
        return 0;
    }
    return err_set(err, ERR_INVALID,
                   "field 'isolation': unknown mode '%.80s'; supported: shared, strict", name);
}

/* ---- numbers: one table for limits and tmpfs sizes ---- */

struct number_field {
    const char *group, *name;
    size_t offset;
    bool wide; /* a size in bytes, uint64_t; else a count, uint32_t */
    uint64_t min, max;
    enum parse_unit unit;
    uint32_t asked;
};

#define WIDE(member) offsetof(struct sandbox_spec, member), true
#define NARROW(member) offsetof(struct sandbox_spec, member), false

/* clang-format off */
static const struct number_field limit_fields[] = {
    {"limits", "memory", WIDE(memory),   SPEC_MEMORY_MIN, SPEC_BYTES_MAX,  PARSE_BYTES, LIMIT_MEMORY},
    {"limits", "pids",   NARROW(pids),   SPEC_PIDS_MIN,   SPEC_PIDS_MAX,   PARSE_COUNT, LIMIT_PIDS},
    {"limits", "disk",   WIDE(disk),     SPEC_DISK_MIN,   SPEC_BYTES_MAX,  PARSE_BYTES, LIMIT_DISK},
    {"limits", "nofile", NARROW(nofile), SPEC_NOFILE_MIN, SPEC_NOFILE_MAX, PARSE_COUNT, LIMIT_NOFILE},
};
static const struct number_field tmpfs_fields[] = {
    {"tmpfs", "tmp",     WIDE(tmp_size),     SPEC_TMPFS_MIN, SPEC_BYTES_MAX, PARSE_BYTES, 0},
    {"tmpfs", "run",     WIDE(run_size),     SPEC_TMPFS_MIN, SPEC_BYTES_MAX, PARSE_BYTES, 0},
    {"tmpfs", "scratch", WIDE(scratch_size), SPEC_TMPFS_MIN, SPEC_BYTES_MAX, PARSE_BYTES, 0},
};
/* clang-format on */

#define NUMBER_ABSENT UINT64_MAX

#define SPEC_SWAP(a, b)                                                                            \
    do {                                                                                           \
        __typeof__(a) swapped = (a);                                                               \
        (a) = (b);                                                                                 \
        (b) = swapped;                                                                             \
    } while (0)

static int spec_apply_numbers(struct sandbox_spec *spec, const struct number_field *fields,
                              const uint64_t *values, size_t n, struct err *err)
{
    for (size_t i = 0; i < n; i++) {
        const struct number_field *f = &fields[i];
        char *at = (char *)spec + f->offset;
        char name[64];
        int r;

        if (values[i] == NUMBER_ABSENT)
            continue;
        snprintf(name, sizeof(name), "field '%s.%s'", f->group, f->name);
        r = parse_check_range(name, values[i], f->min, f->max, f->unit, err);
        if (r < 0)
            return r;
        if (f->wide)
            *(uint64_t *)at = values[i];
        else
            *(uint32_t *)at = (uint32_t)values[i];
        spec->asked |= f->asked;
    }
    return 0;
}

static int spec_apply_cpus(struct sandbox_spec *spec, const json_t *v, struct err *err)
{
    const double min = SPEC_CPUS_MIN_MILLI / 1000.0, max = SPEC_CPUS_MAX_MILLI / 1000.0;
    double cpus;

    if (!json_is_number(v))
        return err_set(err, ERR_INVALID, "field 'limits.cpus' must be a number such as 2 or 0.5");
    cpus = json_number_value(v);
    if (!(cpus >= min && cpus <= max))
        return err_set(err, ERR_INVALID, "field 'limits.cpus' must be between %g and %g", min, max);
    spec->cpu_milli = (uint32_t)lround(cpus * 1000);
    spec->asked |= LIMIT_CPUS;
    return 0;
}

static int spec_apply_limits(struct sandbox_spec *spec, const json_t *obj, struct err *err)
{
    uint64_t v[] = {NUMBER_ABSENT, NUMBER_ABSENT, NUMBER_ABSENT, NUMBER_ABSENT};
    const json_t *cpus = NULL;
    const struct json_field fields[] = {
        {"memory", JSON_FIELD_U64, &v[0]}, {"pids", JSON_FIELD_U64, &v[1]},
        {"disk", JSON_FIELD_U64, &v[2]},   {"nofile", JSON_FIELD_U64, &v[3]},
        {"cpus", JSON_FIELD_ANY, &cpus},
    };
    int r;

    r = json_read(obj, "limits", fields, ARRAY_SIZE(fields), err);
    if (r < 0)
        return r;
    r = spec_apply_numbers(spec, limit_fields, v, ARRAY_SIZE(limit_fields), err);
    return r < 0 || !cpus ? r : spec_apply_cpus(spec, cpus, err);
}

static int spec_apply_tmpfs(struct sandbox_spec *spec, const json_t *obj, struct err *err)
{
    uint64_t v[] = {NUMBER_ABSENT, NUMBER_ABSENT, NUMBER_ABSENT};
    const struct json_field fields[] = {
        {"tmp", JSON_FIELD_U64, &v[0]},
        {"run", JSON_FIELD_U64, &v[1]},
        {"scratch", JSON_FIELD_U64, &v[2]},
    };
    int r;

    r = json_read(obj, "tmpfs", fields, ARRAY_SIZE(fields), err);
    return r < 0 ? r : spec_apply_numbers(spec, tmpfs_fields, v, ARRAY_SIZE(tmpfs_fields), err);
}

/* ---- strings ---- */

static bool spec_path_is_clean(const char *p)
{
    size_t len = strlen(p);

    if (p[0] != '/' || len > SPEC_PATH_MAX || (len > 1 && p[len - 1] == '/'))
        return false;
    for (const char *s = p; *s; s++) {
        const char *seg = s + 1;

        if ((unsigned char)*s < 0x20 || *s == 0x7f)
            return false;
        if (*s != '/' || len == 1)
            continue;
        if (*seg == '/' || *seg == '\0')
            return false;
        if (seg[0] == '.' &&
            (seg[1] == '/' || !seg[1] || (seg[1] == '.' && (seg[2] == '/' || !seg[2]))))
            return false;
    }
    return true;
}

int spec_check_path(const char *field, const char *p, struct err *err)
{
    if (spec_path_is_clean(p))
        return 0;
    return err_set(err, ERR_INVALID,
                   "field '%s': '%s' must be an absolute path without '.', '..' or '//'", field, p);
}

static void spec_replace(char **dst, const char *s)
{
    char *copy = xstrdup(s);

    free(*dst);
    *dst = copy;
}

/* Enough to keep it out of paths and headers. The engine knows whether such an image exists. */
static int spec_apply_image(struct sandbox_spec *spec, const char *image, struct err *err)
{
    static const char ok[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/:@";

    if (!*image || strlen(image) > SPEC_IMAGE_MAX || strspn(image, ok) != strlen(image) ||
        strstr(image, "..") || !isalnum((unsigned char)*image))
        return err_set(err, ERR_INVALID, "field 'image': invalid image name '%.100s'", image);
    if (spec->image && STREQ(spec->image, image))
        return 0;
    spec_replace(&spec->image, image);
    free(TAKE_PTR(spec->image_digest));
    return 0;
}

static int spec_apply_runtime(struct sandbox_spec *spec, const char *runtime, struct err *err)
{
    static const char ok[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";

    if (!*runtime || strlen(runtime) > SPEC_RUNTIME_MAX || strspn(runtime, ok) != strlen(runtime))
        return err_set(err, ERR_INVALID, "field 'runtime': invalid runtime name '%.100s'", runtime);
    free(TAKE_PTR(spec->runtime));
    if (!STREQ(runtime, "default"))
        spec->runtime = xstrdup(runtime);
    return 0;
}

static int spec_apply_strings(struct sandbox_spec *spec, const char *image, const char *network,
                              const char *user, const char *workdir, struct err *err)
{
    if (image && spec_apply_image(spec, image, err) < 0)
        return -ERR_INVALID;
    if (network && spec_network_parse(network, &spec->network, err) < 0)
        return err_wrap(err, "field 'network'");
    if (user && parse_user(user, err) < 0)
        return err_wrap(err, "field 'user'");
    if (workdir && spec_check_path("workdir", workdir, err) < 0)
        return -ERR_INVALID;
    if (user)
        spec_replace(&spec->user, user);
    if (workdir)
        spec_replace(&spec->workdir, workdir);
    return 0;
}

/* ---- env and labels: objects of strings ---- */

static int spec_env_entry(const char *key, const char *value, char **ret, struct err *err)
{
    _cleanup_free_ char *entry = xasprintf("%s=%s", key, value);
    int r = parse_env(entry, err);

    if (r < 0)
        return r;
    if (strchr(key, '='))
        return err_set(err, ERR_INVALID, "invalid variable name '%s'", key);
    *ret = TAKE_PTR(entry);
    return 0;
}

static int spec_label_entry(const char *key, const char *value, char **ret, struct err *err)
{
    static const char ok[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._/-";

    if (!*key || strlen(key) > 128 || strspn(key, ok) != strlen(key))
        return err_set(err, ERR_INVALID,
                       "invalid label name '%.140s' (letters, digits and . _ / -, at most 128)",
                       key);
    if (strlen(value) > SPEC_LABEL_MAX)
        return err_set(err, ERR_INVALID, "label '%s' is longer than %d bytes", key, SPEC_LABEL_MAX);
    *ret = xasprintf("%s=%s", key, value);
    return 0;
}

typedef int (*entry_fn)(const char *key, const char *value, char **ret, struct err *err);

static int spec_read_pairs(const json_t *obj, const char *field, size_t max, entry_fn make,
                           char ***ret, struct err *err)
{
    _cleanup_strv_ char **v = xcalloc(json_object_size(obj) + 1, sizeof(char *));
    size_t n = 0, bytes = 0;
    const char *key;
    json_t *value;

    if (json_object_size(obj) > max)
        return err_set(err, ERR_INVALID, "field '%s' has %zu entries, at most %zu are allowed",
                       field, json_object_size(obj), max);
    json_object_foreach ((json_t *)obj, key, value) {
        if (!json_is_string(value))
            return err_set(err, ERR_INVALID, "field '%s.%.100s' must be a string", field, key);
        if (make(key, json_string_value(value), &v[n], err) < 0)
            return err_wrap(err, "field '%s'", field);
        bytes += strlen(v[n++]) + 1;
    }
    if (bytes > SPEC_ENV_BYTES_MAX)
        return err_set(err, ERR_INVALID,
                       "field '%s' has %zu bytes in total, at most %d are allowed", field, bytes,
                       SPEC_ENV_BYTES_MAX);
    *ret = TAKE_PTR(v);
    return 0;
}

int spec_env_read(const json_t *obj, char ***ret, struct err *err)
{
    return spec_read_pairs(obj, "env", SPEC_ENV_MAX, spec_env_entry, ret, err);
}

static int spec_apply_env(struct sandbox_spec *spec, const json_t *obj, struct err *err)
{
    char **v = NULL;
    int r = spec_env_read(obj, &v, err);

    if (r < 0)
        return r;
    strv_free(spec->env);
    spec->env = v;
    return 0;
}

static int spec_apply_labels(struct sandbox_spec *spec, const json_t *obj, struct err *err)
{
    char **v = NULL;
    int r = spec_read_pairs(obj, "labels", SPEC_LABELS_MAX, spec_label_entry, &v, err);

    if (r < 0)
        return r;
    strv_free(spec->labels);
    spec->labels = v;
    return 0;
}

/* ---- caches ---- */

/* "private", or "shared:GROUP". */
static int spec_read_mode(const char *text, struct spec_cache *ret, struct err *err)
{
    const char *colon = strchr(text, ':');
    _cleanup_free_ char *mode = xstrndup(text, colon ? (size_t)(colon - text) : strlen(text));
    int r = cache_mode_parse(mode, &ret->mode, err);

    if (r < 0 || !colon)
        return r;
    if (ret->mode != CACHE_SHARED)
        return err_set(err, ERR_INVALID, "'%.80s': only mode 'shared' takes a group", text);
    if (!name_is_valid(colon + 1)) {
        err_set(err, ERR_INVALID, "invalid group '%.80s'", colon + 1);
        return err_hint(err, "Use lower-case letters, digits and dashes, as in sandbox names.");
    }
    ret->group = xstrdup(colon + 1);
    return 0;
}

static int spec_read_cache(const char *tool, const json_t *mode, struct spec_cache *ret,
                           struct err *err)
{
    bool all = STREQ(tool, CACHE_ALL);
    const struct cache_tool *t;

    if (!json_is_string(mode))
        return err_set(err, ERR_INVALID, "field 'caches.%.100s' must be a string", tool);
    if (!all && cache_tool_find(tool, &t, err) < 0)
        return err_wrap(err, "field 'caches'");
    if (spec_read_mode(json_string_value(mode), ret, err) < 0)
        return err_wrap(err, "field 'caches'");
    if (all && ret->mode == CACHE_SHARED)
        return err_set(err, ERR_INVALID,
                       "field 'caches': mode 'shared' must be set for each tool by name");
    ret->tool = xstrdup(tool);
    return 0;
}

/* An entry for all tools sets the mode and is not kept in the list. */
static void spec_take_all(struct sandbox_spec *tmp, enum spec_cache_mode *mode)
{
    struct spec_cache *last = &tmp->caches[tmp->n_caches - 1];

    if (!STREQ(last->tool, CACHE_ALL))
        return;
    *mode = last->mode;
    free(TAKE_PTR(last->tool)); /* the next entry reuses the slot */
    tmp->n_caches--;
}

static int spec_apply_caches(struct sandbox_spec *spec, const json_t *obj, struct err *err)
{
    /* Only its caches are used: the cleanup frees the new list on failure, else the old one. */
    _cleanup_(sandbox_spec_done) struct sandbox_spec tmp = {0};
    enum spec_cache_mode all = spec->cache_mode;
    const char *tool;
    json_t *mode;

    tmp.caches = xcalloc(json_object_size(obj) + 1, sizeof(*tmp.caches));
    json_object_foreach ((json_t *)obj, tool, mode) {
        int r = spec_read_cache(tool, mode, &tmp.caches[tmp.n_caches++], err);

        if (r < 0)
            return r;
        spec_take_all(&tmp, &all);
    }
    spec->cache_mode = all;
    SPEC_SWAP(spec->caches, tmp.caches);
    SPEC_SWAP(spec->n_caches, tmp.n_caches);
    return 0;
}

static int spec_refuse_cache(const char *tool, enum spec_cache_mode mode, struct err *err)
{
    err_set(err, ERR_INVALID, "isolation 'strict' does not allow cache '%s' in mode '%s'", tool,
            cache_mode_name(mode));
    return err_hint(err, "Use mode 'private' or 'off': other sandboxes share the files of "
                         "that cache.");
}

/* A strict sandbox shares no cache. The default mode becomes private; a requested shared mode is
 * refused. */
static int spec_apply_strict(struct sandbox_spec *spec, const json_t *caches, struct err *err)
{
    const uint32_t own = 1U << CACHE_PRIVATE | 1U << CACHE_OFF;

    if (spec->isolation != SPEC_ISOLATION_STRICT)
        return 0;
    if (spec->cache_mode == CACHE_LAYERED && !json_object_get(caches, CACHE_ALL))
        spec->cache_mode = CACHE_PRIVATE;
    if (!(own & 1U << spec->cache_mode))
        return spec_refuse_cache(CACHE_ALL, spec->cache_mode, err);
    for (size_t i = 0; i < spec->n_caches; i++)
        if (!(own & 1U << spec->caches[i].mode))
            return spec_refuse_cache(spec->caches[i].tool, spec->caches[i].mode, err);
    return 0;
}

/* ---- mounts ---- */

static bool spec_path_below(const char *path, const char *root)
{
    size_t len = strlen(root);

    return strncmp(path, root, len) == 0 && (path[len] == '/' || path[len] == '\0');
}

/* The sandbox has file systems of its own there; a mount would break or expose them. */
static const char *const reserved_targets[] = {
    "/proc", "/sys", "/dev", "/run/ripcord", "/.ripcord", "/cache",
    "/usr",  "/etc", "/bin", "/lib",         "/lib64",    "/sbin",
};

static int spec_check_mount(const struct spec_mount *m, char *const *roots, size_t i,
                            struct err *err)
{
    bool allowed = false;

    for (char *const *p = roots; p && *p && !allowed; p++)
        allowed = spec_path_below(m->source, *p);
    if (!allowed) {
        err_set(err, ERR_DENIED,
                "field 'mounts[%zu].source': '%s' is outside the allowed mount roots", i,
                m->source);
        return err_hint(err, "Add a folder to 'mounts.roots' in ripcord.yaml to allow it.");
    }
    for (size_t k = 0; k < ARRAY_SIZE(reserved_targets); k++)
        if (spec_path_below(m->target, reserved_targets[k]) || STREQ(m->target, "/"))
            return err_set(err, ERR_INVALID, "field 'mounts[%zu].target': '%s' is a reserved path",
                           i, m->target);
    return 0;
}

static int spec_read_mount(const json_t *obj, char *const *roots, size_t i, struct spec_mount *ret,
                           struct err *err)
{
    const char *source = NULL, *target = NULL;
    bool read_only = false;
    const struct json_field fields[] = {
        {"source", JSON_FIELD_STRING, &source},
        {"target", JSON_FIELD_STRING, &target},
        {"read_only", JSON_FIELD_BOOL, &read_only},
    };
    int r;

    r = json_read(obj, "mounts[]", fields, ARRAY_SIZE(fields), err);
    if (r < 0)
        return r;
    if (!source || !target)
        return err_set(err, ERR_INVALID, "field 'mounts[%zu]' needs a source and a target", i);
    r = spec_check_path("mounts[].source", source, err);
    if (r < 0)
        return r;
    r = spec_check_path("mounts[].target", target, err);
    if (r < 0)
        return r;
    /* Filled before the check, so that the caller frees it also on failure. */
    *ret = (struct spec_mount){xstrdup(source), xstrdup(target), read_only};
    return spec_check_mount(ret, roots, i, err);
}

static int spec_apply_mounts(struct sandbox_spec *spec, const json_t *array, char *const *roots,
                             struct err *err)
{
    /* Only its mounts are used: the cleanup frees the new list on failure, else the old one. */
    _cleanup_(sandbox_spec_done) struct sandbox_spec tmp = {0};
    size_t n = json_array_size(array);

    if (n > SPEC_MOUNTS_MAX)
        return err_set(err, ERR_INVALID, "field 'mounts' has %zu entries, at most %d are allowed",
                       n, SPEC_MOUNTS_MAX);
    tmp.mounts = n ? xcalloc(n, sizeof(*tmp.mounts)) : NULL;
    tmp.n_mounts = n;
    for (size_t i = 0; i < n; i++) {
        int r = spec_read_mount(json_array_get(array, i), roots, i, &tmp.mounts[i], err);

        if (r < 0)
            return r;
    }
    SPEC_SWAP(spec->mounts, tmp.mounts);
    SPEC_SWAP(spec->n_mounts, tmp.n_mounts);
    return 0;
}

/* ---- the whole document ---- */

struct spec_doc {
    const char *engine, *image, *runtime, *network, *isolation, *user, *workdir;
    const json_t *limits, *tmpfs, *env, *labels, *mounts, *caches;
    uint64_t idle_stop_ms, max_life_ms, rm_after_ms;
};

#define NO_LEASES                                                                                  \
    {                                                                                              \
        .idle_stop_ms = NUMBER_ABSENT, .max_life_ms = NUMBER_ABSENT, .rm_after_ms = NUMBER_ABSENT  \
    }

static int spec_read_doc(const json_t *patch, struct spec_doc *d, struct err *err)
{
    const struct json_field fields[] = {
        {"engine", JSON_FIELD_STRING, &d->engine},
        {"image", JSON_FIELD_STRING, &d->image},
        {"runtime", JSON_FIELD_STRING, &d->runtime},
        {"caches", JSON_FIELD_OBJECT, &d->caches},
        {"limits", JSON_FIELD_OBJECT, &d->limits},
        {"network", JSON_FIELD_STRING, &d->network},
        {"isolation", JSON_FIELD_STRING, &d->isolation},
        {"tmpfs", JSON_FIELD_OBJECT, &d->tmpfs},
        {"user", JSON_FIELD_STRING, &d->user},
        {"workdir", JSON_FIELD_STRING, &d->workdir},
        {"env", JSON_FIELD_OBJECT, &d->env},
        {"labels", JSON_FIELD_OBJECT, &d->labels},
        {"mounts", JSON_FIELD_ARRAY, &d->mounts},
        {"idle_stop_ms", JSON_FIELD_U64, &d->idle_stop_ms},
        {"max_life_ms", JSON_FIELD_U64, &d->max_life_ms},
        {"rm_after_ms", JSON_FIELD_U64, &d->rm_after_ms},
    };

    return json_read(patch, NULL, fields, ARRAY_SIZE(fields), err);
}

static int spec_apply_lease(uint64_t *lease, const char *field, uint64_t ms, struct err *err)
{
    char name[64];
    int r;

    if (ms == NUMBER_ABSENT)
        return 0;
    snprintf(name, sizeof(name), "field '%s'", field);
    r = parse_check_range(name, ms, 0, SPEC_LEASE_MAX_MS, PARSE_MSEC, err);
    if (r < 0)
        return r;
    *lease = ms * USEC_PER_MSEC;
    return 0;
}

static int spec_apply_doc_leases(struct sandbox_spec *spec, const struct spec_doc *d,
                                 struct err *err)
{
    int r;

    r = spec_apply_lease(&spec->idle_stop, "idle_stop_ms", d->idle_stop_ms, err);
    if (r < 0)
        return r;
    r = spec_apply_lease(&spec->max_life, "max_life_ms", d->max_life_ms, err);
    if (r < 0)
        return r;
    return spec_apply_lease(&spec->rm_after, "rm_after_ms", d->rm_after_ms, err);
}

int spec_apply_leases(struct sandbox_spec *spec, const json_t *patch, struct err *err)
{
    struct spec_doc d = NO_LEASES;
    const struct json_field fields[] = {
        {"idle_stop_ms", JSON_FIELD_U64, &d.idle_stop_ms},
        {"max_life_ms", JSON_FIELD_U64, &d.max_life_ms},
        {"rm_after_ms", JSON_FIELD_U64, &d.rm_after_ms},
    };
    int r = json_read(patch, NULL, fields, ARRAY_SIZE(fields), err);

    return r < 0 ? r : spec_apply_doc_leases(spec, &d, err);
}

static int spec_apply_doc(struct sandbox_spec *spec, const struct spec_doc *d, char *const *roots,
                          struct err *err)
{
    int r;

    r = spec_apply_strings(spec, d->image, d->network, d->user, d->workdir, err);
    if (r < 0)
        return r;
    r = d->runtime ? spec_apply_runtime(spec, d->runtime, err) : 0;
    if (r < 0)
        return r;
    r = d->isolation ? spec_apply_isolation(spec, d->isolation, err) : 0;
    if (r < 0)
        return r;
    r = d->caches ? spec_apply_caches(spec, d->caches, err) : 0;
    if (r < 0)
        return r;
    r = spec_apply_strict(spec, d->caches, err); /* checks the caches as well */
    if (r < 0)
        return r;
    r = d->limits ? spec_apply_limits(spec, d->limits, err) : 0;
    if (r < 0)
        return r;
    r = d->tmpfs ? spec_apply_tmpfs(spec, d->tmpfs, err) : 0;
    if (r < 0)
        return r;
    r = d->env ? spec_apply_env(spec, d->env, err) : 0;
    if (r < 0)
        return r;
    r = d->labels ? spec_apply_labels(spec, d->labels, err) : 0;
    if (r < 0)
        return r;
    r = d->mounts ? spec_apply_mounts(spec, d->mounts, roots, err) : 0;
    return r < 0 ? r : spec_apply_doc_leases(spec, d, err);
}

int spec_apply(struct sandbox_spec *spec, const char **engine, const json_t *patch,
               char *const *mount_roots, struct err *err)
{
    struct spec_doc d = NO_LEASES;
    struct sandbox_spec work;
    int r;

    r = spec_read_doc(patch, &d, err);
    if (r < 0)
        return r;
    sandbox_spec_copy(&work, spec);
    r = spec_apply_doc(&work, &d, mount_roots, err);
    if (r < 0) {
        sandbox_spec_done(&work);
        return r;
    }
    sandbox_spec_done(spec);
    *spec = work;
    if (d.engine)
        *engine = d.engine;
    return 0;
}

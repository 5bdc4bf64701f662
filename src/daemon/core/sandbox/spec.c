/*
 * JSON to spec. A patch is applied to a copy, which replaces the spec if every field is valid.
 */
#include "daemon/core/sandbox/spec.h"

#include <ctype.h>
#include <math.h>
#include <stddef.h>

#include "daemon/core/sandbox/spec-lists.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

enum {
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

static const char *const isolation_names[] = {"shared", "strict", "confined"};

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
                   "field 'isolation': unknown mode '%.80s'; supported: shared, strict, confined",
                   name);
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

/* ---- the whole document ---- */

struct spec_doc {
    const char *engine, *image, *runtime, *network, *isolation, *user, *workdir;
    const json_t *limits, *tmpfs, *env, *labels, *mounts, *ports, *caches, *clear;
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
        {"ports", JSON_FIELD_ARRAY, &d->ports},
        {"clear", JSON_FIELD_ARRAY, &d->clear},
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

/* Fields of some isolations. (spec_to_json() leaves the sizes of confined sandboxes out.) */
static int spec_check_confined(struct sandbox_spec *spec, const struct spec_doc *d, struct err *err)
{
    if (!sandbox_spec_is_confined(spec) && !d->ports)
        spec->n_ports = 0;
    if (!sandbox_spec_is_confined(spec) && spec->n_ports) {
        err_set(err, ERR_INVALID, "field 'ports' needs isolation 'confined'");
        return err_hint(err, "Leave the ports out: other sandboxes may listen on every port.");
    }
    if (sandbox_spec_is_confined(spec) && d->tmpfs) {
        err_set(err, ERR_UNSUPPORTED, "isolation 'confined' has no tmpfs");
        return err_hint(err, "Leave the sizes out; $TMPDIR is a folder of the sandbox.");
    }
    return 0;
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
    r = d->clear ? spec_clear_lists(spec, d->clear, err) : 0;
    if (r < 0)
        return r;
    r = d->caches ? spec_apply_caches(spec, d->caches, err) : 0;
    if (r < 0)
        return r;
    r = spec_apply_own_caches(spec, d->caches, err); /* checks the caches as well */
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
    if (r < 0)
        return r;
    r = d->ports ? spec_apply_ports(spec, d->ports, err) : 0;
    if (r < 0)
        return r;
    r = spec_check_confined(spec, d, err);
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

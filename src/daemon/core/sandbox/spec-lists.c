#include "daemon/core/sandbox/spec-lists.h"

#include "daemon/core/sandbox/command-check.h"
#include "daemon/core/sandbox/spec.h"
#include "daemon/engine/caches.h"
#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "proto/spec-limits.h"

enum {
    SPEC_LABELS_MAX = 64,
    SPEC_LABEL_MAX = 1024,
    SPEC_MOUNTS_MAX = 32,
};

/* ---- env and labels: objects of strings ---- */

static int spec_env_entry(const char *key, const char *value, char **ret, struct err *err)
{
    _cleanup_free_ char *entry = xasprintf("%s=%s", key, value);
    int r = parse_env(entry, err);

    if (r < 0)
        return r;
    if (strchr(key, '='))
        return err_set(err, ERR_INVALID, "invalid variable name '%s'", key);
    r = command_check_variable(entry, err);
    if (r < 0)
        return r;
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

static int spec_check_labels(char *const *v, struct err *err)
{
    size_t n = strv_len(v);

    if (n <= SPEC_LABELS_MAX)
        return 0;
    return err_set(err, ERR_INVALID, "field 'labels' has %zu entries, at most %d are allowed", n,
                   SPEC_LABELS_MAX);
}

/* One kind of K=V list. */
struct pair_list {
    const char *field;
    int (*make)(const char *key, const char *value, char **ret, struct err *err);
    int (*check)(char *const *v, struct err *err);
};

static const struct pair_list env_list = {"env", spec_env_entry, command_check_env};
static const struct pair_list label_list = {"labels", spec_label_entry, spec_check_labels};

static int spec_read_pairs(const struct pair_list *l, const json_t *obj, char ***ret,
                           struct err *err)
{
    _cleanup_strv_ char **v = xcalloc(json_object_size(obj) + 1, sizeof(char *));
    const char *key;
    json_t *value;
    size_t n = 0;
    int r;

    json_object_foreach ((json_t *)obj, key, value) {
        if (!json_is_string(value))
            return err_set(err, ERR_INVALID, "field '%s.%.100s' must be a string", l->field, key);
        if (l->make(key, json_string_value(value), &v[n], err) < 0)
            return err_wrap(err, "field '%s'", l->field);
        n++;
    }
    r = l->check(v, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(v);
    return 0;
}

int spec_env_read(const json_t *obj, char ***ret, struct err *err)
{
    return spec_read_pairs(&env_list, obj, ret, err);
}

int spec_labels_read(const json_t *obj, char ***ret, struct err *err)
{
    return obj ? spec_read_pairs(&label_list, obj, ret, err) : 0;
}

static int spec_merge_pairs(const struct pair_list *l, char ***list, const json_t *obj,
                            struct err *err)
{
    _cleanup_strv_ char **added = NULL, **before = NULL;
    _cleanup_free_ char **all = NULL;
    int r = spec_read_pairs(l, obj, &added, err);

    if (r < 0)
        return r;
    all = strv_env_merge((char *const *const[]){*list, added}, 2);
    before = *list;
    *list = strv_copy(all);
    return l->check(*list, err);
}

int spec_apply_env(struct sandbox_spec *spec, const json_t *obj, struct err *err)
{
    return spec_merge_pairs(&env_list, &spec->env, obj, err);
}

int spec_apply_labels(struct sandbox_spec *spec, const json_t *obj, struct err *err)
{
    return spec_merge_pairs(&label_list, &spec->labels, obj, err);
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
    if (all && ret->mode == CACHE_SHARED) {
        free(TAKE_PTR(ret->group));
        return err_set(err, ERR_INVALID,
                       "field 'caches': mode 'shared' must be set for each tool by name");
    }
    ret->tool = all ? NULL : xstrdup(tool);
    return 0;
}

static void spec_drop_cache(struct sandbox_spec *spec, size_t i)
{
    free(spec->caches[i].tool);
    free(spec->caches[i].group);
    spec->caches[i] = spec->caches[--spec->n_caches];
}

static void spec_put_cache(struct sandbox_spec *spec, const struct spec_cache *c)
{
    for (size_t i = 0; i < spec->n_caches; i++)
        if (STREQ(spec->caches[i].tool, c->tool))
            spec_drop_cache(spec, i--);
    spec->caches = xreallocarray(spec->caches, spec->n_caches + 1, sizeof(*spec->caches));
    spec->caches[spec->n_caches++] = *c;
}

/* An entry for all tools sets the mode and is not kept in the list. */
int spec_apply_caches(struct sandbox_spec *spec, const json_t *obj, struct err *err)
{
    const char *tool;
    json_t *mode;

    json_object_foreach ((json_t *)obj, tool, mode) {
        struct spec_cache c = {0};
        int r = spec_read_cache(tool, mode, &c, err);

        if (r < 0)
            return r;
        if (STREQ(tool, CACHE_ALL))
            spec->cache_mode = c.mode;
        else
            spec_put_cache(spec, &c);
    }
    return 0;
}

/* A strict sandbox must not share, which contradicts the mode; a confined one cannot. */
static int spec_refuse_cache(const struct sandbox_spec *spec, const char *tool,
                             enum spec_cache_mode mode, struct err *err)
{
    err_set(err, sandbox_spec_is_confined(spec) ? ERR_UNSUPPORTED : ERR_INVALID,
            "isolation '%s' does not allow cache '%s' in mode '%s'",
            spec_isolation_name(spec->isolation), tool, cache_mode_name(mode));
    return err_hint(err, "Use mode 'private' or 'off': other sandboxes share the files of "
                         "that cache.");
}

int spec_apply_own_caches(struct sandbox_spec *spec, const json_t *caches, struct err *err)
{
    const uint32_t own = 1U << CACHE_PRIVATE | 1U << CACHE_OFF;

    if (spec->isolation == SPEC_ISOLATION_SHARED)
        return 0;
    if (spec->cache_mode == CACHE_LAYERED && !json_object_get(caches, CACHE_ALL))
        spec->cache_mode = CACHE_PRIVATE;
    if (!(own & 1U << spec->cache_mode))
        return spec_refuse_cache(spec, CACHE_ALL, spec->cache_mode, err);
    for (size_t i = 0; i < spec->n_caches; i++)
        if (!(own & 1U << spec->caches[i].mode))
            return spec_refuse_cache(spec, spec->caches[i].tool, spec->caches[i].mode, err);
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

static int spec_check_mount(const char *source, const char *target, char *const *roots, size_t i,
                            struct err *err)
{
    bool allowed = false;

    for (char *const *p = roots; p && *p && !allowed; p++)
        allowed = spec_path_below(source, *p);
    if (!allowed) {
        err_set(err, ERR_DENIED,
                "field 'mounts[%zu].source': '%s' is outside the allowed mount roots", i, source);
        return err_hint(err, "Add a folder to 'mounts.roots' in ripcord.yaml to allow it.");
    }
    for (size_t k = 0; k < ARRAY_SIZE(reserved_targets); k++)
        if (spec_path_below(target, reserved_targets[k]) || STREQ(target, "/"))
            return err_set(err, ERR_INVALID, "field 'mounts[%zu].target': '%s' is a reserved path",
                           i, target);
    return 0;
}

static int spec_read_mount(const json_t *obj, char *const *roots, size_t i, struct spec_mount *ret,
                           struct err *err)
{
    const char *source = NULL, *target = NULL;
    bool read_only = false, no_root_squash = false;
    const struct json_field fields[] = {
        {"source", JSON_FIELD_STRING, &source},
        {"target", JSON_FIELD_STRING, &target},
        {"read_only", JSON_FIELD_BOOL, &read_only},
        {"no_root_squash", JSON_FIELD_BOOL, &no_root_squash},
    };
    int r;

    r = json_read(obj, "mounts[]", fields, ARRAY_SIZE(fields), err);
    if (r < 0)
        return r;
    if (!source || !target)
        return err_set(err, ERR_INVALID, "field 'mounts[%zu]' needs a source and a target", i);
    if (read_only && no_root_squash)
        return err_set(err, ERR_INVALID,
                       "field 'mounts[%zu]': 'no_root_squash' has no effect on a read-only mount",
                       i);
    r = spec_check_path("mounts[].source", source, err);
    if (r < 0)
        return r;
    r = spec_check_path("mounts[].target", target, err);
    if (r < 0)
        return r;
    r = spec_check_mount(source, target, roots, i, err);
    if (r < 0)
        return r;
    *ret = (struct spec_mount){xstrdup(source), xstrdup(target), read_only, no_root_squash};
    return 0;
}

static void spec_drop_mount(struct sandbox_spec *spec, size_t i)
{
    free(spec->mounts[i].source);
    free(spec->mounts[i].target);
    for (spec->n_mounts--; i < spec->n_mounts; i++)
        spec->mounts[i] = spec->mounts[i + 1];
}

static void spec_drop_mount_at(struct sandbox_spec *spec, const char *target)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (STREQ(spec->mounts[i].target, target))
            spec_drop_mount(spec, i--);
}

int spec_apply_mounts(struct sandbox_spec *spec, const json_t *array, char *const *roots,
                      struct err *err)
{
    const json_t *item;
    size_t i;

    json_array_foreach (array, i, item) {
        struct spec_mount m = {0};
        int r = spec_read_mount(item, roots, i, &m, err);

        if (r < 0)
            return r;
        spec_drop_mount_at(spec, m.target);
        spec->mounts = xreallocarray(spec->mounts, spec->n_mounts + 1, sizeof(*spec->mounts));
        spec->mounts[spec->n_mounts++] = m;
        if (spec->n_mounts > SPEC_MOUNTS_MAX)
            return err_set(err, ERR_INVALID, "field 'mounts' has more than %d entries",
                           SPEC_MOUNTS_MAX);
    }
    return 0;
}

/* ---- ports ---- */

static void spec_drop_port(struct sandbox_spec *spec, uint64_t port)
{
    size_t kept = 0;

    for (size_t i = 0; i < spec->n_ports; i++)
        if (spec->ports[i] != port)
            spec->ports[kept++] = spec->ports[i];
    spec->n_ports = kept;
}

int spec_apply_ports(struct sandbox_spec *spec, const json_t *array, struct err *err)
{
    const json_t *item;
    size_t i;

    json_array_foreach (array, i, item) {
        json_int_t port = json_integer_value(item);

        if (!json_is_integer(item) || port < SPEC_PORT_MIN || port > SPEC_PORT_MAX)
            return err_set(err, ERR_INVALID, "field 'ports[%zu]' must be between %d and %d", i,
                           SPEC_PORT_MIN, SPEC_PORT_MAX);
        spec_drop_port(spec, (uint64_t)port);
        spec->ports = xreallocarray(spec->ports, spec->n_ports + 1, sizeof(*spec->ports));
        spec->ports[spec->n_ports++] = (uint16_t)port;
        if (spec->n_ports > SPEC_PORTS_MAX)
            return err_set(err, ERR_INVALID, "field 'ports' has more than %d entries",
                           SPEC_PORTS_MAX);
    }
    return 0;
}

/* ---- clearing; key NULL: the whole list ---- */

static void spec_clear_pairs(char ***list, const char *key)
{
    char **kept = NULL;

    for (char **v = *list; key && v && *v; v++)
        if (strcspn(*v, "=") != strlen(key) || strncmp(*v, key, strlen(key)) != 0)
            strv_add(&kept, *v);
    strv_free(*list);
    *list = kept;
}

static void spec_clear_env(struct sandbox_spec *spec, const char *key)
{
    spec_clear_pairs(&spec->env, key);
}

static void spec_clear_labels(struct sandbox_spec *spec, const char *key)
{
    spec_clear_pairs(&spec->labels, key);
}

static void spec_clear_mounts(struct sandbox_spec *spec, const char *key)
{
    while (!key && spec->n_mounts)
        spec_drop_mount(spec, spec->n_mounts - 1);
    if (key)
        spec_drop_mount_at(spec, key);
}

static void spec_clear_caches(struct sandbox_spec *spec, const char *key)
{
    for (size_t i = 0; i < spec->n_caches; i++)
        if (!key || STREQ(spec->caches[i].tool, key))
            spec_drop_cache(spec, i--);
    if (!key || STREQ(key, CACHE_ALL))
        spec->cache_mode = CACHE_LAYERED;
}

static void spec_clear_ports(struct sandbox_spec *spec, const char *key)
{
    uint64_t port = 0;

    if (!key)
        spec->n_ports = 0;
    else if (parse_u64(key, SPEC_PORT_MIN, SPEC_PORT_MAX, &port, NULL) >= 0)
        spec_drop_port(spec, port);
}

static const struct {
    const char *name;
    void (*clear)(struct sandbox_spec *spec, const char *key);
} spec_lists[] = {
    {"env", spec_clear_env},     {"labels", spec_clear_labels}, {"mounts", spec_clear_mounts},
    {"ports", spec_clear_ports}, {"caches", spec_clear_caches},
};

static int spec_clear_one(struct sandbox_spec *spec, const char *text, struct err *err)
{
    size_t len = strcspn(text, "=");
    const char *key = text[len] ? text + len + 1 : NULL;

    for (size_t i = 0; i < ARRAY_SIZE(spec_lists); i++) {
        if (strlen(spec_lists[i].name) != len || strncmp(spec_lists[i].name, text, len) != 0)
            continue;
        spec_lists[i].clear(spec, key);
        return 0;
    }
    return err_set(err, ERR_INVALID,
                   "field 'clear': unknown list '%.80s'; supported: env, labels, mounts, ports, "
                   "caches, each alone or as LIST=KEY",
                   text);
}

int spec_clear_lists(struct sandbox_spec *spec, const json_t *array, struct err *err)
{
    const json_t *item;
    size_t i;

    json_array_foreach (array, i, item) {
        int r;

        if (!json_is_string(item))
            return err_set(err, ERR_INVALID, "field 'clear[%zu]' must be a string", i);
        r = spec_clear_one(spec, json_string_value(item), err);
        if (r < 0)
            return r;
    }
    return 0;
}

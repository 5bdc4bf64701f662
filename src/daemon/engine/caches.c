#include "daemon/engine/caches.h"

#include <stdlib.h>
#include <string.h>

#include "lib/base/macro.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "proto/plan.h"

/*
 * Why these variables: npm without PREFER_OFFLINE requests the metadata of each package again, so
 * that the cache saves little. uv must copy, because its cache is on another file system than the
 * project. pnpm has variables of its own since version 11. Up to version 10 it reads npm's, but npm
 * warns about each one that it does not know itself. So a file in the home of our own images refers
 * to pnpm's variables (images/default/pnpmrc). apt has no variable for its cache.
 */
/* clang-format off */
static const struct cache_tool tools[] = {
    {"pip",   "/cache/pip",   {"PIP_CACHE_DIR=/cache/pip"}},
    {"npm",   "/cache/npm",   {"NPM_CONFIG_CACHE=/cache/npm", "NPM_CONFIG_PREFER_OFFLINE=true"}},
    {"uv",    "/cache/uv",    {"UV_CACHE_DIR=/cache/uv", "UV_LINK_MODE=copy"}},
    {"yarn",  "/cache/yarn",  {"YARN_CACHE_FOLDER=/cache/yarn"}},
    {"pnpm",  "/cache/pnpm",  {"pnpm_config_store_dir=/cache/pnpm/store", "pnpm_config_cache_dir=/cache/pnpm/meta"}},
    {"go",    "/cache/go",    {"GOMODCACHE=/cache/go/mod", "GOCACHE=/cache/go/build"}},
    {"cargo", "/cache/cargo", {"CARGO_HOME=/cache/cargo"}},
    {"maven", "/cache/maven", {"MAVEN_ARGS=-Dmaven.repo.local=/cache/maven -Daether.syncContext.named.factory=file-lock"}},
    {"apt",   "/var/cache/apt/archives", {NULL}},
};
/* clang-format on */

/*
 * pip accepts plain http on the loopback, but caches nothing from a host that is not trusted. yarn
 * 2 and later refuses plain http unless the host is allowed. yarn 1 reads YARN_REGISTRY. pnpm reads
 * npm's variables up to version 10, later only its own. poetry has no variable; its plugin
 * poetry-plugin-pypi-mirror has one. Checks for a newer pip, npm or pnpm are switched off: they
 * would download that package's index first.
 */
/* clang-format off */
static const struct { const char *name, *path, *value; } packages_env[] = {
    {"PIP_INDEX_URL",                 "/pypi/simple/", NULL},
    {"PIP_TRUSTED_HOST",              NULL,            "127.0.0.1"},
    {"PIP_DISABLE_PIP_VERSION_CHECK", NULL,            "1"},
    {"UV_DEFAULT_INDEX",              "/pypi/simple/", NULL},
    {"PDM_PYPI_URL",                  "/pypi/simple/", NULL},
    {"PIPENV_PYPI_MIRROR",            "/pypi/simple/", NULL},
    {"POETRY_PYPI_MIRROR_URL",        "/pypi/simple/", NULL},
    {"NPM_CONFIG_REGISTRY",           "/npm/",         NULL},
    {"NPM_CONFIG_UPDATE_NOTIFIER",    NULL,            "false"},
    {"pnpm_config_registry",          "/npm/",         NULL},
    {"pnpm_config_update_notifier",   NULL,            "false"},
    {"YARN_REGISTRY",                 "/npm/",         NULL},
    {"YARN_NPM_REGISTRY_SERVER",      "/npm",          NULL},
    {"YARN_UNSAFE_HTTP_WHITELIST",    NULL,            "127.0.0.1"},
    {"BUN_CONFIG_REGISTRY",           "/npm/",         NULL},
};
/* clang-format on */

static const char *const mode_names[] = {
    [CACHE_OFF] = "off",         [CACHE_PRIVATE] = "private",   [CACHE_SHARED] = "shared",
    [CACHE_LAYERED] = "layered", [CACHE_READONLY] = "readonly",
};

const struct cache_tool *cache_tool_at(size_t i)
{
    return i < ARRAY_SIZE(tools) ? &tools[i] : NULL;
}

int cache_tool_find(const char *name, const struct cache_tool **ret, struct err *err)
{
    const char *names[ARRAY_SIZE(tools) + 1] = {NULL}, *near;
    _cleanup_free_ char *all = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(tools); i++) {
        names[i] = tools[i].name;
        if (!STREQ(tools[i].name, name))
            continue;
        *ret = &tools[i];
        return 0;
    }
    all = strv_join((char *const *)names, ", ");
    err_set(err, ERR_INVALID, "unknown cache tool '%.40s'; supported: %s", name, all);
    near = strv_nearest(name, names, ARRAY_SIZE(tools));
    return near ? err_hint(err, "Did you mean '%s'?", near) : -ERR_INVALID;
}

const char *cache_mode_name(enum spec_cache_mode m)
{
    return mode_names[m];
}

int cache_mode_parse(const char *name, enum spec_cache_mode *ret, struct err *err)
{
    _cleanup_free_ char *all = NULL;
    const char *near;

    for (size_t i = 0; i < ARRAY_SIZE(mode_names); i++) {
        if (STREQ(mode_names[i], name)) {
            *ret = (enum spec_cache_mode)i;
            return 0;
        }
    }
    all = cache_mode_list((1U << CACHE_MODES) - 1);
    err_set(err, ERR_INVALID, "unknown cache mode '%.40s'; supported: %s", name, all);
    near = strv_nearest(name, mode_names, ARRAY_SIZE(mode_names));
    return near ? err_hint(err, "Did you mean '%s'?", near) : -ERR_INVALID;
}

char *cache_mode_list(uint32_t bits)
{
    _cleanup_strv_ char **names = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(mode_names); i++)
        if (bits & (1U << i))
            strv_add(&names, mode_names[i]);
    return strv_join(names, ", ");
}

/* npm reads its variables in upper and lower case; which of two wins is undocumented. */
static bool engine_caches_sets(char *const *env, const char *name)
{
    size_t len = strlen(name);

    for (; env && *env; env++)
        if (strncasecmp(*env, name, len) == 0 && (*env)[len] == '=')
            return true;
    return false;
}

char **packages_variables(const struct sandbox_spec *spec, uint16_t port)
{
    char **env = NULL;

    for (size_t i = 0; i < ARRAY_SIZE(packages_env); i++) {
        const char *name = packages_env[i].name, *path = packages_env[i].path;

        if (spec->network != SPEC_NETWORK_PACKAGES || engine_caches_sets(spec->env, name))
            continue;
        strv_push(&env, path ? xasprintf("%s=http://127.0.0.1:%d%s", name, port, path)
                             : xasprintf("%s=%s", name, packages_env[i].value));
    }
    return env;
}

static const struct spec_cache *engine_caches_named(const struct sandbox_spec *spec,
                                                    const struct cache_tool *t)
{
    for (size_t i = 0; i < spec->n_caches; i++)
        if (STREQ(spec->caches[i].tool, t->name))
            return &spec->caches[i];
    return NULL;
}

bool cache_is_below_root(const struct cache_tool *t)
{
    return strncmp(t->target, CACHE_ROOT "/", strlen(CACHE_ROOT "/")) == 0;
}

enum spec_cache_mode cache_mode_of(const struct sandbox_spec *spec, const struct cache_tool *t)
{
    const struct spec_cache *c = engine_caches_named(spec, t);

    if (c)
        return c->mode;
    return cache_is_below_root(t) ? spec->cache_mode : CACHE_OFF;
}

const char *cache_group_of(const struct sandbox_spec *spec, const struct cache_tool *t)
{
    const struct spec_cache *c = engine_caches_named(spec, t);

    return c && c->group ? c->group : "";
}

/* Only the image knows the ids of other names; they get the agent's. */
uint32_t cache_owner(const struct sandbox_spec *spec)
{
    _cleanup_free_ char *id = xstrndup(spec->user, strcspn(spec->user, ":"));
    uint32_t uid = PLAN_AGENT_ID;

    if (STREQ(id, "root"))
        return 0;
    parse_u32(id, 0, PLAN_ID_COUNT - 1, &uid, NULL);
    return uid;
}

void cache_variables(const struct sandbox_spec *spec, cache_there_fn there, const void *arg,
                     char ***env)
{
    const struct cache_tool *t;

    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        enum spec_cache_mode mode = cache_mode_of(spec, t);

        if (mode == CACHE_OFF || !there(arg, t, mode))
            continue;
        for (const char *const *v = t->env; *v; v++) {
            _cleanup_free_ char *name = xstrndup(*v, strcspn(*v, "="));

            if (!engine_caches_sets(spec->env, name))
                strv_add(env, *v);
        }
    }
}

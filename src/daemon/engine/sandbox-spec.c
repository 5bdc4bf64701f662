#include "daemon/engine/sandbox-spec.h"

#include <string.h>

#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

static char *sandbox_spec_copy_str(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static char **sandbox_spec_copy_strv(char *const *v)
{
    return v ? strv_copy(v) : NULL;
}

void sandbox_spec_done(struct sandbox_spec *spec)
{
    if (!spec)
        return;
    free(spec->image);
    free(spec->image_digest);
    free(spec->runtime);
    free(spec->user);
    free(spec->workdir);
    strv_free(spec->env);
    strv_free(spec->labels);
    strv_free(spec->hashed_labels);
    for (size_t i = 0; i < spec->n_mounts; i++) {
        free(spec->mounts[i].source);
        free(spec->mounts[i].target);
    }
    free(spec->mounts);
    free(spec->ports);
    for (size_t i = 0; i < spec->n_caches; i++) {
        free(spec->caches[i].tool);
        free(spec->caches[i].group);
    }
    free(spec->caches);
    *spec = (struct sandbox_spec){0};
}

void sandbox_spec_copy(struct sandbox_spec *dst, const struct sandbox_spec *src)
{
    *dst = *src;
    dst->image = sandbox_spec_copy_str(src->image);
    dst->image_digest = sandbox_spec_copy_str(src->image_digest);
    dst->runtime = sandbox_spec_copy_str(src->runtime);
    dst->user = sandbox_spec_copy_str(src->user);
    dst->workdir = sandbox_spec_copy_str(src->workdir);
    dst->env = sandbox_spec_copy_strv(src->env);
    dst->labels = sandbox_spec_copy_strv(src->labels);
    dst->hashed_labels = sandbox_spec_copy_strv(src->hashed_labels);
    dst->mounts = src->n_mounts ? xcalloc(src->n_mounts, sizeof(*dst->mounts)) : NULL;
    for (size_t i = 0; i < src->n_mounts; i++) {
        dst->mounts[i].source = sandbox_spec_copy_str(src->mounts[i].source);
        dst->mounts[i].target = sandbox_spec_copy_str(src->mounts[i].target);
        dst->mounts[i].read_only = src->mounts[i].read_only;
        dst->mounts[i].no_root_squash = src->mounts[i].no_root_squash;
    }
    dst->ports = src->n_ports ? xmemdup(src->ports, src->n_ports * sizeof(*src->ports)) : NULL;
    dst->caches = src->n_caches ? xcalloc(src->n_caches, sizeof(*dst->caches)) : NULL;
    for (size_t i = 0; i < src->n_caches; i++)
        dst->caches[i] =
            (struct spec_cache){sandbox_spec_copy_str(src->caches[i].tool), src->caches[i].mode,
                                sandbox_spec_copy_str(src->caches[i].group)};
}

bool sandbox_spec_writes_to_host(const struct sandbox_spec *spec)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (!spec->mounts[i].read_only)
            return true;
    return false;
}

bool sandbox_spec_squashes_root(const struct sandbox_spec *spec)
{
    for (size_t i = 0; i < spec->n_mounts; i++)
        if (!spec->mounts[i].read_only && !spec->mounts[i].no_root_squash)
            return true;
    return false;
}

bool sandbox_spec_is_confined(const struct sandbox_spec *spec)
{
    return spec->isolation == SPEC_ISOLATION_CONFINED;
}

bool spec_user_is_root(const char *user)
{
    return STREQ(user, "root") || STREQ(user, "0") || strncmp(user, "0:", 2) == 0;
}

/*
 * Debian marks its Python as externally managed, and pip then installs nothing, not even into the
 * user's home. That protects a system that people maintain with apt. A sandbox has its own file
 * system, so pip may install: as an ordinary user into ~/.local, and as root without a warning.
 * Older versions of pip ignore the variables.
 */
char **spec_environment_at(const char *home, const char *path, const char *user, char *const *own,
                           char *const *more)
{
    _cleanup_free_ char *all_paths = xasprintf("PATH=%s", path);
    char *const standard[] = {
        all_paths,
        (char *)"LANG=C.UTF-8",
        (char *)"PIP_BREAK_SYSTEM_PACKAGES=1",
        (char *)"PIP_ROOT_USER_ACTION=ignore",
        NULL,
    };
    _cleanup_free_ char **base = strv_env_merge((char *const *const[]){standard, more}, 2);
    _cleanup_free_ char **all = NULL;
    _cleanup_strv_ char **who = NULL;
    const char *old;

    /* `pip install`, `uv tool` and pipx put the programs of packages into this folder. */
    old = strv_env_get(base, "PATH");
    if (*old) /* an empty part of PATH is the current folder */
        strv_push(&who, xasprintf("PATH=%s/.local/bin:%s", home, old));
    strv_push(&who, xasprintf("HOME=%s", home));
    strv_push(&who, xasprintf("USER=%s", user));
    strv_push(&who, xasprintf("LOGNAME=%s", user));
    all = strv_env_merge((char *const *const[]){base, who, own}, 3);
    return strv_copy(all);
}

char **spec_environment(const char *user, char *const *own, char *const *more)
{
    return spec_environment_at(spec_user_is_root(user) ? "/root" : "/home/agent", SPEC_PATH, user,
                               own, more);
}

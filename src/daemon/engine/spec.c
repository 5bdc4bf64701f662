/*
 * Plain value types: deep copies and their release. Every pointer in them is owned, so a copy is
 * "the struct, then each pointer again".
 */
#include "daemon/engine/spec.h"

#include <dirent.h>
#include <fcntl.h>
#include <string.h>

#include "daemon/engine/engine.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

enum { BOX_ID_LEN = 16 };

static char *engine_spec_copy_str(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static char **engine_spec_copy_strv(char *const *v)
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
    for (size_t i = 0; i < spec->n_mounts; i++) {
        free(spec->mounts[i].source);
        free(spec->mounts[i].target);
    }
    free(spec->mounts);
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
    dst->image = engine_spec_copy_str(src->image);
    dst->image_digest = engine_spec_copy_str(src->image_digest);
    dst->runtime = engine_spec_copy_str(src->runtime);
    dst->user = engine_spec_copy_str(src->user);
    dst->workdir = engine_spec_copy_str(src->workdir);
    dst->env = engine_spec_copy_strv(src->env);
    dst->labels = engine_spec_copy_strv(src->labels);
    dst->mounts = src->n_mounts ? xcalloc(src->n_mounts, sizeof(*dst->mounts)) : NULL;
    for (size_t i = 0; i < src->n_mounts; i++) {
        dst->mounts[i].source = engine_spec_copy_str(src->mounts[i].source);
        dst->mounts[i].target = engine_spec_copy_str(src->mounts[i].target);
        dst->mounts[i].read_only = src->mounts[i].read_only;
    }
    dst->caches = src->n_caches ? xcalloc(src->n_caches, sizeof(*dst->caches)) : NULL;
    for (size_t i = 0; i < src->n_caches; i++)
        dst->caches[i] =
            (struct spec_cache){engine_spec_copy_str(src->caches[i].tool), src->caches[i].mode,
                                engine_spec_copy_str(src->caches[i].group)};
}

static void engine_spec_wipe(char *p, size_t len)
{
    if (p)
        explicit_bzero(p, len);
    free(p);
}

void exec_request_wipe(struct exec_request *r)
{
    for (char **e = r->env; e && *e; e++)
        explicit_bzero(*e, strlen(*e));
    strv_free(TAKE_PTR(r->env));
    engine_spec_wipe(TAKE_PTR(r->input), r->input_len);
    for (size_t i = 0; i < r->n_secrets; i++) {
        engine_spec_wipe(r->secrets[i].value, r->secrets[i].len);
        free(r->secrets[i].name);
        free(r->secrets[i].target);
    }
    free(TAKE_PTR(r->secrets));
    r->n_secrets = r->input_len = 0;
}

void exec_request_done(struct exec_request *r)
{
    if (!r)
        return;
    exec_request_wipe(r);
    strv_free(r->argv);
    free(r->cwd);
    free(r->user);
    *r = (struct exec_request){0};
}

static struct exec_secret *engine_spec_copy_secrets(const struct exec_secret *src, size_t n)
{
    struct exec_secret *dst = n ? xcalloc(n, sizeof(*dst)) : NULL;

    for (size_t i = 0; i < n; i++) {
        dst[i] = src[i];
        dst[i].name = xstrdup(src[i].name);
        dst[i].value = xmemdup(src[i].value, src[i].len);
        dst[i].target = engine_spec_copy_str(src[i].target);
    }
    return dst;
}

static struct exec_request *engine_spec_exec_request_copy(const struct exec_request *src)
{
    struct exec_request *r = xnew0(struct exec_request);

    *r = *src;
    r->argv = strv_copy(src->argv);
    r->env = strv_copy(src->env);
    r->cwd = engine_spec_copy_str(src->cwd);
    r->user = engine_spec_copy_str(src->user);
    r->input = src->input ? xmemdup(src->input, src->input_len) : NULL;
    r->secrets = engine_spec_copy_secrets(src->secrets, src->n_secrets);
    return r;
}

void sandbox_request_copy(struct sandbox_request *dst, const struct sandbox_request *src)
{
    *dst = *src;
    sandbox_spec_copy(&dst->spec, &src->spec);
    dst->spec_text = engine_spec_copy_str(src->spec_text);
    dst->spec_label = engine_spec_copy_str(src->spec_label);
    dst->first = src->first ? engine_spec_exec_request_copy(src->first) : NULL;
}

void sandbox_request_done(struct sandbox_request *req)
{
    if (!req)
        return;
    sandbox_spec_done(&req->spec);
    free(req->spec_text);
    free(req->spec_label);
    exec_request_done(req->first);
    free(req->first);
    *req = (struct sandbox_request){0};
}

static const char *engine_spec_home_of(const char *user)
{
    bool root = STREQ(user, "root") || STREQ(user, "0") || strncmp(user, "0:", 2) == 0;

    return root ? "/root" : "/home/agent";
}

static void engine_spec_add_pairs(char ***env, char *const *pairs)
{
    for (char *const *v = pairs; v && *v; v++) {
        const char *eq = strchr(*v, '=');
        _cleanup_free_ char *key = eq ? xstrndup(*v, (size_t)(eq - *v)) : NULL;

        if (key)
            strv_env_set(env, key, eq + 1);
    }
}

/* `pip install`, `uv tool` and pipx put the programs of packages into this folder. */
static void engine_spec_add_user_programs(char ***env, const char *home)
{
    const char *old = strv_env_get(*env, "PATH");
    _cleanup_free_ char *path = xasprintf("%s/.local/bin:%s", home, old);

    /* An empty part of PATH is the current folder. */
    if (*old)
        strv_env_set(env, "PATH", path);
}

/*
 * Debian marks its Python as externally managed, and pip then installs nothing, not even into the
 * user's home. That protects a system that people maintain with apt. A sandbox has its own file
 * system, so pip may install: as an ordinary user into ~/.local. Older versions of pip ignore the
 * variable.
 */
char **spec_environment(const char *user, char *const *own, char *const *more)
{
    char **env = NULL;

    strv_add(&env, "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin");
    strv_add(&env, "LANG=C.UTF-8");
    strv_add(&env, "PIP_BREAK_SYSTEM_PACKAGES=1");
    engine_spec_add_pairs(&env, more);
    engine_spec_add_user_programs(&env, engine_spec_home_of(user));
    strv_env_set(&env, "HOME", engine_spec_home_of(user));
    strv_env_set(&env, "USER", user);
    strv_env_set(&env, "LOGNAME", user);
    engine_spec_add_pairs(&env, own);
    return env;
}

bool sandbox_id_is_valid(const char *id)
{
    return strlen(id) == BOX_ID_LEN && strspn(id, "0123456789abcdef") == BOX_ID_LEN;
}

int sandbox_ids_add(int dirfd, char ***ids, struct err *err)
{
    _cleanup_closedir_ DIR *d = NULL;
    int fd = openat(dirfd, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d) {
        int saved = errno;

        fd_close(fd);
        return err_sys(err, saved, "read a folder of sandboxes");
    }
    for (const struct dirent *e; (e = readdir(d));)
        if (sandbox_id_is_valid(e->d_name) && !strv_contains(*ids, e->d_name))
            strv_add(ids, e->d_name);
    return 0;
}

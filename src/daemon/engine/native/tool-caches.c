#include "daemon/engine/native/tool-caches.h"

#include <dirent.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/engine/caches.h"
#include "daemon/engine/engine-caches.h"
#include "daemon/engine/engine-ops.h"
#include "daemon/engine/native/delete-queue.h"
#include "daemon/engine/native/native.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/fd.h"
#include "lib/base/strv.h"
#include "lib/base/usage.h"
#include "lib/base/xalloc.h"

struct cache_planner {
    struct native_engine *n;
    const struct sandbox_request *req;
    struct plan *p;
    char ***warnings;
    bool private_base; /* the sandbox gets the empty base: its layers are private */
    uint32_t missing;  /* bits of the tools whose cache could not be made */
};

int tool_caches_open(struct native_engine *n, struct err *err)
{
    _cleanup_free_ char *base = xasprintf("%s/caches/base", n->state_dir);
    _cleanup_free_ char *shared = xasprintf("%s/caches/shared", n->state_dir);
    int r;

    r = dir_make_all(AT_FDCWD, shared, 0700, err);
    if (r < 0)
        return r;
    r = dir_open(AT_FDCWD, shared, &n->shared_caches, err);
    if (r < 0)
        return r;
    r = cache_base_open(&n->base, base, n->ranges, err);
    if (r < 0)
        return r;
    cache_base_sweep(&n->base, n->runs);
    return 0;
}

/* ---- one tool ---- */

static struct plan_cache *native_tool_caches_add(struct plan *p, enum plan_cache_kind kind,
                                                 const struct cache_tool *t)
{
    struct plan_cache *c;

    p->caches = xreallocarray(p->caches, p->n_caches + 1, sizeof(*p->caches));
    c = &p->caches[p->n_caches++];
    *c = (struct plan_cache){.kind = kind, .tool = xstrdup(t->name), .target = xstrdup(t->target)};
    return c;
}

static int native_tool_caches_make_shared(const struct cache_planner *f, const char *name,
                                          struct err *err)
{
    int dir = f->n->shared_caches;

    if (mkdirat(dir, name, 0700) < 0)
        return errno == EEXIST ? 0 : err_sys(err, errno, "make shared cache '%s'", name);
    if (f->n->ranges && fchownat(dir, name, PLAN_AGENT_ID, PLAN_AGENT_ID, 0) < 0)
        return err_sys(err, errno, "set the owner of shared cache '%s'", name);
    return fchmodat(dir, name, 0777, 0) < 0
               ? err_sys(err, errno, "set the mode of shared cache '%s'", name)
               : 0;
}

static int native_tool_caches_add_shared(const struct cache_planner *f, const struct cache_tool *t,
                                         struct err *err)
{
    const char *group = cache_group_of(&f->req->spec, t);
    _cleanup_free_ char *name = xasprintf("%s%s%s", t->name, *group ? "." : "", group);
    int r = native_tool_caches_make_shared(f, name, err);

    if (r < 0)
        return r;
    native_tool_caches_add(f->p, PLAN_CACHE_SHARED, t)->source =
        xasprintf("%s/caches/shared/%s", f->n->state_dir, name);
    return r;
}

/* Deletes what an earlier run wrote. On a disk of the sandbox's own the shim does that. */
static int native_tool_caches_add_readonly(const struct cache_planner *f,
                                           const struct cache_tool *t, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/caches", f->req->id);
    _cleanup_close_ int dir = -1;
    int r = 0;

    if (!f->req->spec.disk && !f->req->fresh && dir_open(f->n->sandboxes, path, &dir, NULL) >= 0)
        r = delete_queue_add(f->n->delete_queue, dir, t->name, err);
    if (r < 0)
        return r;
    native_tool_caches_add(f->p, PLAN_CACHE_READONLY, t);
    return r;
}

static int native_tool_caches_add_tool(const struct cache_planner *f, const struct cache_tool *t,
                                       enum spec_cache_mode mode, struct err *err)
{
    bool below = cache_is_below_root(t);

    switch (mode) {
    case CACHE_OFF:
        if (below)
            native_tool_caches_add(f->p, PLAN_CACHE_HIDDEN, t);
        return 0;
    case CACHE_PRIVATE:
        if (!below || !f->private_base)
            native_tool_caches_add(f->p, PLAN_CACHE_PRIVATE, t);
        return 0;
    case CACHE_LAYERED:
        if (!below)
            native_tool_caches_add(f->p, PLAN_CACHE_LAYERED, t);
        return 0;
    case CACHE_SHARED:
        return native_tool_caches_add_shared(f, t, err);
    case CACHE_READONLY:
        return native_tool_caches_add_readonly(f, t, err);
    }
    return 0;
}

/* ---- all tools ---- */

static int native_tool_caches_report_missing(struct cache_planner *f, const char *what,
                                             struct err *why, struct err *err)
{
    if (f->n->cache_required) {
        err_move(err, why);
        return err_wrap(err, "cache '%s' is required and cannot be made", what);
    }
    strv_push(f->warnings, xasprintf("cache '%s' is not available: %s", what, why->msg));
    err_done(why);
    return 0;
}

static int native_tool_caches_add_tools(struct cache_planner *f, struct err *err)
{
    const struct cache_tool *t;

    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        _cleanup_err_ struct err why = ERR_INIT;
        int r;

        if (native_tool_caches_add_tool(f, t, cache_mode_of(&f->req->spec, t), &why) >= 0)
            continue;
        f->missing |= 1U << i;
        r = native_tool_caches_report_missing(f, t->name, &why, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static bool native_tool_caches_is_there(const void *arg, const struct cache_tool *t,
                                        enum spec_cache_mode mode)
{
    const struct cache_planner *f = arg;
    size_t i = 0;

    (void)mode;
    while (cache_tool_at(i) != t)
        i++;
    return !(f->missing & (1U << i));
}

int tool_caches_plan(struct native_engine *n, const struct sandbox_request *req, int run,
                     struct plan *p, char ***env, char ***warnings, struct err *err)
{
    struct cache_planner f = {.n = n, .req = req, .p = p, .warnings = warnings};
    _cleanup_err_ struct err why = ERR_INIT;
    const struct cache_tool *t;
    uint32_t modes = 0; /* that the spec uses: 1 << enum spec_cache_mode */
    int r;

    for (size_t i = 0; (t = cache_tool_at(i)); i++)
        modes |= 1U << cache_mode_of(&req->spec, t);
    if (modes == 1U << CACHE_OFF)
        return 0;
    f.private_base = !(modes & (1U << CACHE_LAYERED | 1U << CACHE_READONLY));
    r = cache_base_take(&n->base, f.private_base, run, &p->cache_base, &why);
    if (r < 0)
        return native_tool_caches_report_missing(&f, CACHE_ALL, &why, err);
    p->cache_owner = cache_owner(&req->spec);
    r = native_tool_caches_add_tools(&f, err);
    if (r < 0)
        return r;
    cache_variables(&req->spec, native_tool_caches_is_there, &f, env);
    return r;
}

/* ---- shared caches ---- */

int native_cache_publish(struct engine *e, const char *tool, int tar_fd, const struct deadline *by,
                         struct err *err)
{
    struct native_engine *n = native_of(e);
    int r;

    (void)by; /* unpacking waits for no other process */
    r = cache_base_publish(&n->base, tool, tar_fd, err);
    if (r < 0)
        return r;
    cache_base_sweep(&n->base, n->runs);
    return r;
}

static bool native_tool_caches_is_of_tool(const char *name, const char *tool)
{
    size_t len = strlen(tool);

    return !len || (strncmp(name, tool, len) == 0 && (!name[len] || name[len] == '.'));
}

static char **native_tool_caches_shared_stores(const struct native_engine *n, const char *tool)
{
    _cleanup_closedir_ DIR *d = NULL;
    char **names = NULL;
    int fd = openat(n->shared_caches, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);

    d = fd < 0 ? NULL : fdopendir(fd);
    if (!d)
        fd_close(fd);
    for (const struct dirent *entry; d && (entry = readdir(d));)
        if (entry->d_name[0] != '.' && native_tool_caches_is_of_tool(entry->d_name, tool))
            strv_add(&names, entry->d_name);
    return names;
}

/* Deletes shared stores under their names: running sandboxes keep the store that they have
 * mounted, and later ones get a new one. */
int native_cache_drop(struct engine *e, const char *tool, const struct deadline *by,
                      struct err *err)
{
    struct native_engine *n = native_of(e);
    _cleanup_strv_ char **stores = native_tool_caches_shared_stores(n, tool);
    int r;

    (void)by;
    r = cache_base_drop(&n->base, *tool ? tool : NULL, err);
    if (r < 0)
        return r;
    cache_base_sweep(&n->base, n->runs);
    for (char **s = stores; s && *s; s++) {
        r = delete_queue_add(n->delete_queue, n->shared_caches, *s, err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int native_tool_caches_list_base(struct native_engine *n, const struct deadline *by,
                                        struct engine_caches *ret, struct err *err)
{
    const struct cache_tool *t;

    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        uint64_t bytes = 0, made = 0;
        struct engine_cache *c;
        int r = cache_base_usage(&n->base, t->name, by, &bytes, &made, err);

        if (r < 0)
            return r;
        if (!bytes)
            continue;
        c = engine_caches_add(ret, ENGINE_CACHE_BASE, t->name, "");
        c->bytes = bytes;
        c->changed = made;
    }
    return 0;
}

static int native_tool_caches_list_shared(struct native_engine *n, const struct deadline *by,
                                          struct engine_caches *ret, struct err *err)
{
    _cleanup_strv_ char **stores = native_tool_caches_shared_stores(n, "");

    for (char **s = stores; s && *s; s++) {
        _cleanup_free_ char *tool = xstrndup(*s, strcspn(*s, "."));
        const char *dot = strchr(*s, '.');
        struct engine_cache *c =
            engine_caches_add(ret, ENGINE_CACHE_SHARED, tool, dot ? dot + 1 : "");
        int r = usage_add(n->shared_caches, *s, by, &c->bytes, err);

        if (r < 0)
            return r;
    }
    return 0;
}

/* A sandbox with a disk of its own keeps its caches there, where they are not counted. */
static int native_tool_caches_list_private(struct native_engine *n, const struct deadline *by,
                                           struct engine_caches *ret, struct err *err)
{
    _cleanup_strv_ char **ids = NULL;
    int r = sandbox_ids_add(n->sandboxes, &ids, err);

    if (r < 0)
        return r;
    for (char **id = ids; id && *id; id++) {
        _cleanup_free_ char *main = xasprintf("%s/root/upper/cache", *id);
        _cleanup_free_ char *own = xasprintf("%s/caches", *id);
        uint64_t bytes = 0;

        r = usage_add(n->sandboxes, main, by, &bytes, err);
        if (r < 0)
            return r;
        r = usage_add(n->sandboxes, own, by, &bytes, err);
        if (r < 0)
            return r;
        if (bytes)
            engine_caches_add(ret, ENGINE_CACHE_PRIVATE, "", *id)->bytes = bytes;
    }
    return 0;
}

int native_cache_list(struct engine *e, const struct deadline *by, struct engine_caches *ret,
                      struct err *err)
{
    struct native_engine *n = native_of(e);
    int r = native_tool_caches_list_base(n, by, ret, err);

    if (r < 0)
        return r;
    r = native_tool_caches_list_shared(n, by, ret, err);
    if (r < 0)
        return r;
    return native_tool_caches_list_private(n, by, ret, err);
}

#include "image/build/mounts.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "image/build/agent.h"
#include "image/build/copy.h"
#include "image/build/sources.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"

void mounts_done(struct mounts *m)
{
    for (size_t i = 0; i < m->n_held; i++)
        mount_cache_done(&m->held[i]);
    free(m->held);
    strv_free(m->held_ids);
    for (size_t i = 0; i < m->n_agents; i++)
        agent_end(m->agents[i]);
    free(m->agents);
    json_decref(m->list);
    json_decref(m->secrets);
    *m = (struct mounts){0};
}

static void build_mounts_add(struct mounts *m, const char *source, const char *target,
                             bool read_only)
{
    json_array_append_new(m->list, json_pack("{s:s, s:s, s:b}", "source", source, "target", target,
                                             "read_only", read_only));
}

/* ---- caches ---- */

/* A new folder gets the owner and mode of the mount; an existing one stays unchanged. */
static int build_mounts_make_slot(const struct workspace *w, int dir, const char *name,
                                  const struct dockerfile_mount *m, struct err *err)
{
    mode_t mode = mount_number(m->mode, 8, 0755) & 07777;
    uint32_t uid = mount_number(m->uid, 10, 0), gid = mount_number(m->gid, 10, 0);

    if ((uid || gid) && w->ids->kind != CONFINED_RANGE)
        return err_set(err, ERR_UNSUPPORTED,
                       "a cache mount with 'uid' or 'gid' needs a daemon that runs as root");
    if (mkdirat(dir, name, 0700) < 0)
        return errno == EEXIST ? 0 : err_sys(err, errno, "make a cache mount");
    if (((uid || gid) && fchownat(dir, name, uid, gid, AT_SYMLINK_NOFOLLOW) < 0) ||
        fchmodat(dir, name, mode, 0) < 0)
        return err_sys(err, errno, "set the owner of a cache mount");
    return 0;
}

static enum mount_cache_share build_mounts_share_of(const char *sharing)
{
    if (sharing && STREQ(sharing, "locked"))
        return MOUNT_CACHE_LOCKED;
    return sharing && STREQ(sharing, "private") ? MOUNT_CACHE_PRIVATE : MOUNT_CACHE_SHARED;
}

/* Two mounts of one step may share a cache: it is locked once. */
static int build_mounts_hold(const struct workspace *w, struct mounts *ms, const char *id,
                             const struct dockerfile_mount *m, const struct mount_cache **ret,
                             struct err *err)
{
    struct mount_cache c;
    int r;

    for (size_t i = 0; i < ms->n_held; i++)
        if (STREQ(ms->held_ids[i], id)) {
            *ret = &ms->held[i];
            return 0;
        }
    r = mount_cache_take(w->store, id, build_mounts_share_of(m->sharing), &c, err);
    if (r < 0)
        return r;
    strv_add(&ms->held_ids, id);
    ms->held = xreallocarray(ms->held, ms->n_held + 1, sizeof(*ms->held));
    ms->held[ms->n_held] = c;
    *ret = &ms->held[ms->n_held++];
    return 0;
}

static int build_mounts_take_cache(struct workspace *w, const struct dockerfile_mount *m,
                                   const char *id, struct mounts *ms, char **ret_source,
                                   struct err *err)
{
    const struct mount_cache *c = NULL;
    _cleanup_free_ char *slot = NULL;
    int r;

    r = build_mounts_hold(w, ms, id, m, &c, err);
    if (r < 0)
        return r;
    slot = xasprintf("%u", c->slot);
    r = build_mounts_make_slot(w, c->dir, slot, m, err);
    if (r < 0)
        return r;
    *ret_source = xasprintf("%s/%s", c->folder, slot);
    return 0;
}

static int build_mounts_prepare_cache(struct workspace *w, const struct dockerfile_mount *m,
                                      struct mounts *ms, struct err *err)
{
    const char *id = m->id ? m->id : m->target;
    _cleanup_free_ char *source = NULL;

    if (build_mounts_take_cache(w, m, id, ms, &source, err) < 0)
        return err_wrap(err, "cache mount '%.200s'", id);
    build_mounts_add(ms, source, m->target, m->read_only);
    return 0;
}

/* ---- binds ---- */

struct bind_copy {
    const char *source, *folder;
    bool from_src;
};

/* In the child. */
static int build_mounts_copy_bind(void *arg, int dir, struct err *err)
{
    const struct bind_copy *b = arg;
    _cleanup_close_ int from = -1, to = -1, source = -1;
    char *const sources[] = {(char *)b->source, NULL};
    struct copy_job job = {.sources = sources, .mode = -1};
    struct stat st;
    int r;

    r = dir_open(dir, b->from_src ? "src" : "context", &from, err);
    if (r < 0)
        return r;
    r = dir_open(dir, b->folder, &to, err);
    if (r < 0)
        return r;
    r = sources_open_path(from, b->source, &source, err);
    if (r < 0)
        return r;
    if (fstat(source, &st) < 0)
        return err_sys(err, errno, "stat '%.200s'", b->source);
    job.from = from;
    job.to = to;
    job.dest = S_ISDIR(st.st_mode) ? "/all/" : "/";
    return copy_files(&job, err);
}

/* A mount that the command may write to, or whose files are in several layers, is a copy that is
 * deleted with the workspace. */
static int build_mounts_bind_copy(struct workspace *w, const struct build_mount *b,
                                  const char *source, char *const *layers, struct mounts *ms,
                                  struct err *err)
{
    _cleanup_free_ char *folder = NULL, *below = NULL, *path = NULL;
    struct bind_copy job = {.source = source, .from_src = layers != NULL};
    struct stat st;
    int r = workspace_folder(w, 0755, &folder, err);

    if (r < 0)
        return r;
    job.folder = folder;
    r = workspace_run(
        w, &(struct workspace_job){.from = layers, .fn = build_mounts_copy_bind, .arg = &job}, err);
    if (r < 0)
        return r;
    below = xasprintf("%s/all", folder);
    if (fstatat(w->dir, below, &st, AT_SYMLINK_NOFOLLOW) == 0 && S_ISDIR(st.st_mode))
        path = xasprintf("%s/%s", w->path, below);
    else
        path = xasprintf("%s/%s/%s", w->path, folder, sources_name(source));
    build_mounts_add(ms, path, b->m.target, b->m.read_only);
    return 0;
}

/* Mounts a path of the context itself. The mount needs the path without links. */
static int build_mounts_bind_context(struct workspace *w, const struct build_mount *b,
                                     const char *source, struct mounts *ms, struct err *err)
{
    _cleanup_close_ int context = -1, fd = -1;
    char link[64], real[PATH_MAX], *below;
    ssize_t n;
    int r;

    r = dir_open(w->dir, "context", &context, err);
    if (r < 0)
        return r;
    r = sources_open_path(context, source, &fd, err);
    if (r < 0)
        return r;
    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, real, sizeof(real) - 1);
    real[MAX(n, (ssize_t)0)] = '\0';
    below = strstr(real, w->path);
    if (!below)
        return err_set(err, ERR_SYSTEM, "'%.200s': cannot find its path in the context", source);
    build_mounts_add(ms, below, b->m.target, true);
    return 0;
}

static int build_mounts_prepare_bind(struct workspace *w, const struct build_mount *b,
                                     mounts_from_fn from, void *arg, struct mounts *ms,
                                     struct err *err)
{
    const char *source = b->m.source ? b->m.source : "";
    _cleanup_strv_ char **layers = NULL;
    int r;

    if (!build_is_from_elsewhere(&b->from))
        return b->m.read_only ? build_mounts_bind_context(w, b, source, ms, err)
                              : build_mounts_bind_copy(w, b, source, NULL, ms, err);
    r = from(arg, &b->from, &layers, err);
    if (r < 0)
        return r;
    if (!layers)
        layers = strv_copy(NULL);
    return build_mounts_bind_copy(w, b, source, layers, ms, err);
}

/* ---- other kinds ---- */

static int build_mounts_prepare_tmpfs(struct workspace *w, const struct dockerfile_mount *m,
                                      struct mounts *ms, struct err *err)
{
    _cleanup_free_ char *folder = NULL, *path = NULL;
    int r = workspace_folder(w, 01777, &folder, err);

    if (r < 0)
        return r;
    path = xasprintf("%s/%s", w->path, folder);
    build_mounts_add(ms, path, m->target, m->read_only);
    return 0;
}

/*
 * Only names: the daemon has the values and mounts them. Without 'uid' and 'gid' the secret belongs
 * to the step's user; in BuildKit it belongs to root.
 */
static int build_mounts_prepare_secret(const struct dockerfile_mount *m, struct mounts *ms,
                                       struct err *err)
{
    const char *id = m->id ? m->id : m->source ? m->source : NULL;
    const char *name = m->target ? sources_name(m->target) : NULL;
    json_t *doc;

    if (!id)
        id = m->env && !m->target ? m->env : name;
    if (!id || !*id)
        return err_set(err, ERR_INVALID, "--mount=type=secret: 'id' is missing");
    doc = json_pack("{s:s, s:b}", "id", id, "required", m->required);
    if (m->env)
        json_object_set_new(doc, "env", json_string(m->env));
    if (m->target && !build_is_secrets_place(m->target)) {
        json_object_set_new(doc, "name", json_string("placed"));
        json_object_set_new(doc, "target", json_string(m->target));
    } else if (m->target || !m->env) {
        json_object_set_new(doc, "name", json_string(name ? name : sources_name(id)));
    }
    if (m->uid || m->gid) {
        json_object_set_new(doc, "uid", json_integer(mount_number(m->uid, 10, 0)));
        json_object_set_new(doc, "gid", json_integer(mount_number(m->gid, 10, 0)));
    }
    if (m->mode)
        json_object_set_new(doc, "mode", json_integer(mount_number(m->mode, 8, 0)));
    json_array_append_new(ms->secrets, doc);
    return 0;
}

static int build_mounts_prepare_script(struct workspace *w, const struct build_plan_step *s,
                                       struct mounts *ms, struct err *err)
{
    _cleanup_free_ char *folder = NULL, *file = NULL, *path = NULL;
    int r;

    if (!s->script.name)
        return 0;
    r = workspace_folder(w, 0755, &folder, err);
    if (r < 0)
        return r;
    file = xasprintf("%s/%s", folder, s->script.name);
    path = xasprintf("%s/%s", w->path, folder);
    r = file_replace(w->dir, file, s->script.content, strlen(s->script.content), 0755, false, err);
    if (r < 0)
        return r;
    if (fchmodat(w->dir, file, 0755, 0) < 0)
        return err_sys(err, errno, "make the script");
    build_mounts_add(ms, path, BUILD_SCRIPT_DIR, true);
    return 0;
}

/* Without an agent nothing is mounted: the plan has refused a mount that requires one. */
static int build_mounts_prepare_ssh(struct workspace *w, const struct dockerfile_mount *m,
                                    char *const *agents, struct mounts *ms, struct err *err)
{
    const char *path = strv_env_get(agents, agent_id(m));
    _cleanup_free_ char *source = NULL;
    pid_t pid;
    int r;

    if (!path)
        return 0;
    r = agent_start(w, m, path, &source, &pid, err);
    if (r < 0)
        return r;
    ms->agents = xreallocarray(ms->agents, ms->n_agents + 1, sizeof(*ms->agents));
    ms->agents[ms->n_agents++] = pid;
    /* Read-only: a command can connect to the socket, but not replace it. */
    build_mounts_add(ms, source, m->target, true);
    return 0;
}

static int build_mounts_prepare_one(struct workspace *w, const struct build_mount *b,
                                    char *const *agents, mounts_from_fn from, void *arg,
                                    struct mounts *ms, struct err *err)
{
    int r = 0;

    switch (b->m.type) {
    case MOUNT_CACHE:
        return build_mounts_prepare_cache(w, &b->m, ms, err);
    case MOUNT_BIND:
        r = build_mounts_prepare_bind(w, b, from, arg, ms, err);
        return r < 0 ? err_wrap(err, "bind mount at '%.200s'", b->m.target) : 0;
    case MOUNT_TMPFS:
        return build_mounts_prepare_tmpfs(w, &b->m, ms, err);
    case MOUNT_SECRET:
        return build_mounts_prepare_secret(&b->m, ms, err);
    case MOUNT_SSH:
        return build_mounts_prepare_ssh(w, &b->m, agents, ms, err);
    }
    return 0;
}

int mounts_prepare(struct workspace *w, const struct build_plan_step *s, char *const *agents,
                   mounts_from_fn from, void *arg, struct mounts *ret, struct err *err)
{
    _cleanup_(mounts_done) struct mounts ms = {.list = json_array(), .secrets = json_array()};
    int r;

    r = build_mounts_prepare_script(w, s, &ms, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < s->n_mounts; i++) {
        r = build_mounts_prepare_one(w, &s->mounts[i], agents, from, arg, &ms, err);
        if (r < 0)
            return r;
    }
    *ret = ms;
    ms = (struct mounts){0};
    return 0;
}

/*
 * The container of a sandbox: found by its labels, made with everything it needs, removed for good.
 *
 * Made means: volumes and network are there, the container is created, and our program and the
 * folders of its user are in it. Whatever fails on the way takes back what this call has made.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

#include "daemon/engine/caches.h"
#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/body.h"
#include "daemon/engine/docker/layers.h"
#include "daemon/engine/mounts.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/pidfd.h"

enum { VOLUMES_MAX = 32, GUEST_MAX = 16 << 20, POLL_MS = 25 };

/* Podman lowers its own hard limit to this, and cannot give more. */
#define NPROC_MAX 32768
#define UNDO_TIMEOUT (20 * USEC_PER_SEC)

void container_nap(void)
{
    const struct timespec ts = {.tv_nsec = POLL_MS * 1000000L};

    nanosleep(&ts, NULL);
}

/* ---- finding ---- */

void container_forget(struct docker_engine *d, const char *id)
{
    pthread_mutex_lock(&d->lock);
    free(map_remove(&d->containers, id));
    pthread_mutex_unlock(&d->lock);
}

void container_remember(struct docker_engine *d, const char *id, const char *container)
{
    pthread_mutex_lock(&d->lock);
    free(map_remove(&d->containers, id));
    map_add(&d->containers, id, xstrdup(container));
    pthread_mutex_unlock(&d->lock);
}

void container_seen(struct docker_engine *d, const char *id, const char *container)
{
    pthread_mutex_lock(&d->lock);
    if (!map_get(&d->containers, id))
        map_add(&d->containers, id, xstrdup(container));
    pthread_mutex_unlock(&d->lock);
}

static char *container_remembered(struct docker_engine *d, const char *id)
{
    const char *known;
    char *copy;

    pthread_mutex_lock(&d->lock);
    known = map_get(&d->containers, id);
    copy = known ? xstrdup(known) : NULL;
    pthread_mutex_unlock(&d->lock);
    return copy;
}

int container_find(struct docker_engine *d, const char *id, const struct deadline *by, char **ret,
                   struct err *err)
{
    _cleanup_json_ json_t *filters = NULL;
    _cleanup_free_ char *text = NULL, *path = NULL, *found = container_remembered(d, id);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    const json_t *item;
    size_t i;
    int r;

    if (found) {
        *ret = TAKE_PTR(found);
        return 0;
    }
    filters = json_pack("{s:[o]}", "label", json_sprintf(LABEL_ID "=%s", id));
    text = json_to_text(filters, true);
    path = docker_path("/containers/json?all=1&filters=%s", text);
    r = docker_ask(d, "GET", path, NULL, by, &reply, err);
    if (r < 0)
        return r;
    json_array_foreach (reply.json, i, item) {
        if (!docker_owns(d, id, json_object_get(item, "Labels")))
            continue;
        *ret = xstrdup(docker_text(item, "Id"));
        container_remember(d, id, *ret);
        return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "sandbox '%s' has no container", id);
}

int container_inspect(struct docker_engine *d, const char *container, const struct deadline *by,
                      json_t **ret, struct err *err)
{
    _cleanup_free_ char *path = docker_path("/containers/%s/json", container);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int r;

    r = docker_ask(d, "GET", path, NULL, by, &reply, err);
    if (r >= 0)
        *ret = TAKE_PTR(reply.json);
    return r;
}

/* ---- removing ---- */

static enum engine_sandbox_state container_state_of(const json_t *doc)
{
    const json_t *state = json_object_get(doc, "State");

    if (STREQ(docker_text(state, "Status"), "removing"))
        return ENGINE_SANDBOX_ABSENT;
    if (json_is_true(json_object_get(state, "Paused")))
        return ENGINE_SANDBOX_PAUSED;
    return json_is_true(json_object_get(state, "Running")) ? ENGINE_SANDBOX_RUNNING
                                                           : ENGINE_SANDBOX_STOPPED;
}

/* 1: gone; 0 and why: not yet. */
static int container_remove_once(struct docker_engine *d, const char *container, bool force,
                                 const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *path =
        docker_path(force ? "/containers/%s?force=1&v=1" : "/containers/%s?v=1", container);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int r = docker_ask(d, "DELETE", path, NULL, by, &reply, err);

    if (r >= 0 || reply.reason == DOCKER_NO_CONTAINER)
        return 1;
    /* A forced removal is right in every state: a bad one has changed in that moment. */
    return reply.reason == DOCKER_REMOVING || reply.reason == DOCKER_BAD_STATE ? 0 : r;
}

/*
 * Docker kills by a program, which is a third of the removal of few dozens. On this machine a
 * signal does it, and the engine sees the end as it sees any other. Where that cannot be, or a
 * paused one does not hear it, the removal kills.
 */
bool container_kill_here(struct docker_engine *d, const char *container, const struct deadline *by)
{
    _cleanup_free_ char *path = docker_path("/containers/%s/wait?condition=not-running", container);
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_close_ int pidfd = -1;
    const json_t *state;
    pid_t pid;

    if (docker_client(d)->flavour != DOCKER_FLAVOUR_DOCKER ||
        container_inspect(d, container, by, &doc, NULL) < 0)
        return false;
    state = json_object_get(doc, "State");
    pid = (pid_t)json_integer_value(json_object_get(state, "Pid"));
    if (container_state_of(doc) != ENGINE_SANDBOX_RUNNING)
        return container_state_of(doc) == ENGINE_SANDBOX_STOPPED;
    return pid > 1 && pidfd_open_pid(pid, &pidfd, NULL) >= 0 &&
           pidfd_in_cgroup(pidfd, pid, docker_text(doc, "Id")) &&
           pidfd_signal(pidfd, SIGKILL) >= 0 &&
           docker_ask(d, "POST", path, NULL, by, NULL, NULL) >= 0;
}

/* What does not run goes at once. Somebody else removes it: as good as done, when it is done. */
int container_remove(struct docker_engine *d, const char *container, const struct deadline *by,
                     struct err *err)
{
    if (container_remove_once(d, container, false, by, NULL) > 0)
        return 0;
    (void)container_kill_here(d, container, by);
    for (;;) {
        _cleanup_err_ struct err why = ERR_INIT;
        int r = container_remove_once(d, container, true, by, &why);

        if (r > 0)
            return 0;
        if (r < 0 || deadline_passed(by))
            return err_move(err, &why);
        container_nap();
    }
}

/* ---- looking ---- */

/* Each line of the label is what one missing cache has to say. */
static char **container_warnings_of(const char *without)
{
    _cleanup_free_ char *copy = xstrdup(without);
    char *rest = copy, *line;
    char **v = NULL;

    while ((line = strsep(&rest, "\n")))
        if (*line)
            strv_add(&v, line);
    return v;
}

int docker_look(struct engine *e, const char *id, const struct deadline *by,
                struct engine_sandbox *ret, struct err *err)
{
    struct docker_engine *d = docker_of(e);
    _cleanup_free_ char *container = NULL;
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_err_ struct err why = ERR_INIT;
    const json_t *labels;
    int r;

    r = container_find(d, id, by, &container, &why);
    if (r >= 0)
        r = container_inspect(d, container, by, &doc, &why);
    if (r == -ERR_NOT_FOUND) {
        container_forget(d, id);
        ret->state = ENGINE_SANDBOX_ABSENT;
        return 0;
    }
    if (r < 0)
        return err_move(err, &why);
    labels = json_object_get(json_object_get(doc, "Config"), "Labels");
    ret->state = container_state_of(doc);
    snprintf(ret->hash, sizeof(ret->hash), "%s", docker_text(labels, LABEL_HASH));
    ret->warnings = container_warnings_of(docker_text(labels, LABEL_WITHOUT));
    return 0;
}

/* ---- what it is made of ---- */

struct container_making {
    struct docker_engine *d;
    const struct sandbox_request *req;
    struct body_volume volumes[VOLUMES_MAX];
    size_t n_volumes;
    char **names; /* of the volumes: owned */
    char *network;
    char **without; /* a line for each cache that is missing */
    bool layered;   /* one of the volumes is an overlay */
    bool plain;     /* and none may be */
};

static void container_making_done(struct container_making *m)
{
    strv_free(m->names);
    strv_free(m->without);
    free(m->network);
}

static void container_add_volume(struct container_making *m, const char *name, const char *target,
                                 bool shared)
{
    strv_add(&m->names, name);
    m->volumes[m->n_volumes++] = (struct body_volume){
        .name = m->names[strv_len(m->names) - 1], .target = target, .shared = shared};
}

/* A cache that cannot be made is a warning, unless the configuration says otherwise. */
static int container_add_cache(struct container_making *m, const char *what, const char *name,
                               const char *target, bool shared, const struct deadline *by,
                               struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;

    if (ensure_volume(m->d, name, shared ? NULL : m->req->id, by, &why) >= 0) {
        container_add_volume(m, name, target, shared);
        log_debug("sandbox %s: cache '%s' is ready: volume %s", m->req->name, what, name);
        return 0;
    }
    if (m->d->cache_required) {
        err_move(err, &why);
        return err_wrap(err, "cache '%s' is required and cannot be made", what);
    }
    strv_push(&m->without, xasprintf("it has no cache '%s': %s", what, why.msg));
    return 0;
}

/* A base that cannot be laid below is a warning too: the tool then has its private cache. */
static int container_add_layer(struct container_making *m, const struct cache_tool *t,
                               const struct deadline *by, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    _cleanup_free_ char *name = NULL;
    int r = layer_ensure(m->d, m->req, t, by, &name, &why);

    if (r > 0) {
        container_add_volume(m, name, t->target, false);
        m->layered = true;
    }
    if (r >= 0)
        return 0;
    if (m->d->cache_required) {
        err_move(err, &why);
        return err_wrap(err, "cache '%s' is required and cannot be made", t->name);
    }
    strv_push(&m->without, xasprintf("its cache '%s' is without the base: %s", t->name, why.msg));
    return 0;
}

static int container_add_layers(struct container_making *m, const struct deadline *by,
                                struct err *err)
{
    const struct cache_tool *t;
    int r = 0;

    for (size_t i = 0; r >= 0 && (t = cache_tool_at(i)); i++) {
        enum spec_cache_mode mode = cache_mode_of(&m->req->spec, t);

        if (!m->plain && (mode == CACHE_LAYERED || mode == CACHE_READONLY))
            r = container_add_layer(m, t, by, err);
    }
    return r;
}

/* Private caches below /cache are one volume. What is asked for by name may lie elsewhere. */
static int container_add_private_caches(struct container_making *m, const struct deadline *by,
                                        struct err *err)
{
    _cleanup_free_ char *name = xasprintf("%s-caches-%s", m->d->prefix, m->req->name);
    const struct cache_tool *t;
    bool wanted = false;
    int r = 0;

    for (size_t i = 0; r >= 0 && (t = cache_tool_at(i)); i++) {
        _cleanup_free_ char *own = xasprintf("%s.%s", name, t->name);
        bool below = cache_is_below_root(t);
        enum spec_cache_mode mode = cache_mode_of(&m->req->spec, t);

        if (mode != CACHE_PRIVATE && mode != CACHE_LAYERED)
            continue;
        wanted |= below;
        if (!below)
            r = container_add_cache(m, t->name, own, t->target, false, by, err);
    }
    if (r < 0 || !wanted || m->req->ephemeral)
        return r;
    return container_add_cache(m, "private", name, "/cache", false, by, err);
}

static int container_add_shared_caches(struct container_making *m, const struct deadline *by,
                                       struct err *err)
{
    const struct cache_tool *t;
    int r = 0;

    for (size_t i = 0; r >= 0 && (t = cache_tool_at(i)); i++) {
        const char *group = cache_group_of(&m->req->spec, t);
        _cleanup_free_ char *name =
            xasprintf("%s-cache-%s%s%s", m->d->prefix, t->name, *group ? "." : "", group);

        if (cache_mode_of(&m->req->spec, t) == CACHE_SHARED)
            r = container_add_cache(m, t->name, name, t->target, true, by, err);
    }
    return r;
}

/* A throw-away sandbox has nothing to outlive it. */
static int container_add_home(struct container_making *m, const struct deadline *by,
                              struct err *err)
{
    _cleanup_free_ char *name = xasprintf("%s-home-%s", m->d->prefix, m->req->name);
    int r;

    if (m->req->ephemeral)
        return 0;
    r = ensure_volume(m->d, name, m->req->id, by, err);
    if (r >= 0)
        container_add_volume(m, name, "/home/agent", false);
    return r;
}

static int container_check_mounts(const struct container_making *m, struct err *err)
{
    const struct docker *c = docker_client(m->d);
    const struct sandbox_spec *spec = &m->req->spec;
    const char *own[] = {m->d->state_dir, m->d->run_dir, NULL, NULL, NULL};
    size_t n = 2;
    int r = 0;

    if (spec->n_mounts == 0)
        return 0;
    if (c->endpoint.transport != DOCKER_UNIX) {
        err_set(err, ERR_UNSUPPORTED,
                "the engine is at '%s', where folders of this machine are "
                "not",
                c->where);
        return err_hint(err, "Use 'ripcord cp' to bring files into the sandbox.");
    }
    own[n++] = c->endpoint.path;
    if (m->d->data_dir)
        own[n] = m->d->data_dir;
    for (size_t i = 0; r >= 0 && i < spec->n_mounts; i++) {
        struct mount_source src;

        r = mount_source_check(spec->mounts[i].source, own, &src, err);
    }
    return r;
}

static int container_gather(struct container_making *m, const struct deadline *by, struct err *err)
{
    int r;

    r = container_check_mounts(m, err);
    if (r >= 0)
        r = container_add_home(m, by, err);
    if (r >= 0)
        r = container_add_private_caches(m, by, err);
    if (r >= 0)
        r = container_add_shared_caches(m, by, err);
    if (r >= 0)
        r = container_add_layers(m, by, err);
    if (r >= 0 && m->req->spec.network == SPEC_NETWORK_OPEN)
        r = ensure_network(m->d, by, &m->network, err);
    return r;
}

/* ---- making ---- */

/* Ours stand for the engine's: it was started on this machine as we were. */
static uint64_t container_hard_limit(int resource, uint64_t most)
{
    struct rlimit rl;

    if (getrlimit(resource, &rl) < 0 || rl.rlim_max == RLIM_INFINITY)
        return most;
    return MIN((uint64_t)rl.rlim_max, most);
}

static int container_check_nofile(const struct sandbox_request *req, uint64_t most, struct err *err)
{
    if (!(req->spec.asked & LIMIT_NOFILE) || req->spec.nofile <= most)
        return 0;
    err_set(err, ERR_UNSUPPORTED, "%u open files are asked for, and this machine allows %llu",
            req->spec.nofile, (unsigned long long)most);
    return err_hint(err, "Ask for fewer with 'nofile', or raise the hard limit of the engine.");
}

static int container_put_archive(const struct container_making *m, const struct body_parts *p,
                                 const char *container, const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *program = xasprintf("%s/ripcord-guest", m->d->libexec_dir), *guest = NULL;
    _cleanup_free_ char *path = docker_path("/containers/%s/archive?path=/", container);
    _cleanup_buf_ struct buf tar = BUF_INIT(GUEST_MAX + MIB(1));
    struct deadline one = docker_by(m->d, by);
    struct docker_source source;
    size_t len = 0;
    int r;

    r = file_read(AT_FDCWD, program, GUEST_MAX, &guest, &len, err);
    if (r < 0)
        return err_hint(err, "ripcord-guest belongs beside ripcordd: install ripcord again.");
    r = body_archive(p, guest, len, &tar, err);
    if (r < 0)
        return r;
    source = (struct docker_source){.data = buf_data(&tar), .len = tar.len, .fd = -1};
    r = docker_upload(docker_client(m->d), "PUT", path, &source, &one, NULL, err);
    return r < 0 ? err_wrap(err, "put our program into it") : 0;
}

static int container_post_create(const struct container_making *m, const struct body_parts *p,
                                 const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_free_ char *name = xasprintf("%s-%s", m->d->prefix, m->req->name);
    _cleanup_free_ char *path = docker_path("/containers/create?name=%s", name);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_json_ json_t *body = body_container(p);
    int r;

    if (!body)
        return err_set(err, ERR_INVALID, "a value of the spec is not valid UTF-8");
    r = docker_ask(m->d, "POST", path, body, by, &reply, err);
    if (r < 0 && reply.reason == DOCKER_NAME_TAKEN) {
        err_wrap(err, "the name '%s' is taken by a container that is not this sandbox's", name);
        return err_hint(err, "Remove that container, or choose other names with 'docker.prefix' in "
                             "ripcord.yaml.");
    }
    if (r >= 0)
        *ret = xstrdup(docker_text(reply.json, "Id"));
    return r;
}

static void container_undo(const struct container_making *m, const char *container)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct deadline by = deadline_in(UNDO_TIMEOUT);

    if (container_remove(m->d, container, &by, &err) < 0)
        log_debug("sandbox %s: undo of a failed create: %s", m->req->name, err.msg);
}

/*
 * Docker takes the profile itself, Podman the name of a file on its machine: written each time, as
 * it is small beside a create and a run folder may be swept. A Podman elsewhere cannot read ours,
 * and uses its own.
 */
static int container_give_profile(const struct container_making *m, struct body_parts *p,
                                  char **ret_file, struct err *err)
{
    int r;

    p->seccomp = m->d->profile;
    if (!p->podman)
        return 0;
    p->seccomp = NULL;
    if (docker_client(m->d)->endpoint.transport != DOCKER_UNIX)
        return 0;
    *ret_file = xasprintf("%s/seccomp.json", m->d->run_dir);
    pthread_mutex_lock(&m->d->lock);
    r = file_replace(AT_FDCWD, *ret_file, m->d->profile, strlen(m->d->profile), 0600, false, err);
    pthread_mutex_unlock(&m->d->lock);
    p->seccomp = *ret_file;
    return r;
}

static int container_make(const struct container_making *m, const struct deadline *by,
                          struct err *err)
{
    _cleanup_free_ char *without = strv_join(m->without, "\n"), *container = NULL, *file = NULL;
    struct docker_engine *d = m->d;
    struct body_parts p = {
        .req = m->req,
        .prefix = d->prefix,
        .root_id = d->root_id,
        .network = m->network,
        .volumes = m->volumes,
        .n_volumes = m->n_volumes,
        .label = d->label,
        .without = without,
        .podman = docker_client(d)->flavour == DOCKER_FLAVOUR_PODMAN,
        .caps = d->engine.caps,
        .cpus = d->cpus,
        .nofile_max = container_hard_limit(RLIMIT_NOFILE, UINT32_MAX),
        .nproc_max = container_hard_limit(RLIMIT_NPROC, NPROC_MAX),
    };
    int r;

    r = container_check_nofile(m->req, p.nofile_max, err);
    if (r >= 0)
        r = container_give_profile(m, &p, &file, err);
    if (r >= 0)
        r = container_post_create(m, &p, by, &container, err);
    if (r < 0)
        return r;
    r = container_put_archive(m, &p, container, by, err);
    if (r < 0)
        container_undo(m, container);
    else
        container_remember(d, m->req->id, container);
    return r;
}

/* 1: the container that is there is of this spec, 0: none is there any more. */
static int container_renew(struct docker_engine *d, const struct sandbox_request *req,
                           const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *container = NULL;
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    r = container_find(d, req->id, by, &container, &why);
    if (r >= 0)
        r = container_inspect(d, container, by, &doc, &why);
    if (r == -ERR_NOT_FOUND) {
        container_forget(d, req->id);
        return 0;
    }
    if (r < 0)
        return err_move(err, &why);
    if (STREQ(docker_text(json_object_get(json_object_get(doc, "Config"), "Labels"), LABEL_HASH),
              req->hash))
        return 1;
    r = container_remove(d, container, by, err);
    container_forget(d, req->id);
    return r;
}

/* Our own folder of it, and in it what nobody finds on the engine. */
static int container_make_folder(struct docker_engine *d, const struct sandbox_request *req,
                                 struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/" SPEC_FILE, req->id);
    int r = dir_make_all(d->execs, req->id, 0700, err);

    if (r < 0 || !req->spec_text)
        return r;
    return file_replace(d->execs, path, req->spec_text, strlen(req->spec_text), 0600, false, err);
}

static int container_make_with(struct container_making *m, const struct deadline *by,
                               struct err *err)
{
    int r = container_gather(m, by, err);

    return r < 0 ? r : container_make(m, by, err);
}

/* Whether the engine can mount overlays shows when it does: where it cannot, it is tried without.
 */
static int container_make_all(struct docker_engine *d, const struct sandbox_request *req,
                              const struct deadline *by, struct err *err)
{
    struct container_making m = {.d = d, .req = req}, plain = {.d = d, .req = req, .plain = true};
    _cleanup_err_ struct err why = ERR_INIT;
    int r = container_make_with(&m, by, &why);

    if (r < 0 && m.layered && !d->cache_required) {
        strv_push(&plain.without, xasprintf("its caches are without their base: %s", why.msg));
        if (container_make_with(&plain, by, NULL) >= 0)
            r = 0;
    }
    container_making_done(&m);
    container_making_done(&plain);
    return r < 0 ? err_move(err, &why) : 0;
}

int docker_create(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err)
{
    struct docker_engine *d = docker_of(e);
    int r;

    r = docker_folders(d, err);
    if (r >= 0)
        r = container_make_folder(d, req, err);
    if (r >= 0)
        r = req->fresh ? 0 : container_renew(d, req, by, err);
    if (r == 0)
        r = container_make_all(d, req, by, err);
    if (r >= 0)
        return 0;
    if (req->fresh) {
        struct deadline undo = deadline_in(UNDO_TIMEOUT);

        docker_remove(e, req->id, &undo, NULL);
    }
    return err_wrap(err, "create sandbox '%s'", req->name);
}

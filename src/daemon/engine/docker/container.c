/*
 * The container of a sandbox: finds it by its labels, creates it and removes it.
 *
 * Creating means: volumes and network exist, the container is created, and ripcord-guest and the
 * user's folders are copied into it. A failure on the way undoes what this call has created.
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
#include "daemon/engine/docker/guest-program.h"
#include "daemon/engine/docker/layers.h"
#include "daemon/engine/docker/recreate.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/xalloc.h"
#include "lib/os/pidfd.h"

enum { VOLUMES_MAX = 32, POLL_MS = 25 };

/* Podman lowers its own hard limit to this value and cannot give a container more. */
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
        if (!docker_owns(d, id, json_object_get(item, "Labels")) || container_is_kept(item))
            continue;
        *ret = xstrdup(docker_text(item, "Id"));
        container_remember(d, id, *ret);
        return 0;
    }
    return err_set(err, ERR_NOT_FOUND, "sandbox '%s': its container does not exist", id);
}

int container_inspect(struct docker_engine *d, const char *container, const struct deadline *by,
                      json_t **ret, struct err *err)
{
    _cleanup_free_ char *path = docker_path("/containers/%s/json", container);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int r;

    r = docker_ask(d, "GET", path, NULL, by, &reply, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(reply.json);
    return 0;
}

/* The container of a sandbox and its inspection. ERR_NOT_FOUND: it does not exist. */
static int container_find_and_inspect(struct docker_engine *d, const char *id,
                                      const struct deadline *by, char **ret_container,
                                      json_t **ret_doc, struct err *err)
{
    int r = container_find(d, id, by, ret_container, err);

    if (r < 0)
        return r;
    return container_inspect(d, *ret_container, by, ret_doc, err);
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

/* 1: removed; 0 and *err: not yet. */
static int container_remove_once(struct docker_engine *d, const char *container, bool force,
                                 const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *path =
        docker_path(force ? "/containers/%s?force=1&v=1" : "/containers/%s?v=1", container);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int r = docker_ask(d, "DELETE", path, NULL, by, &reply, err);

    if (r >= 0 || reply.reason == DOCKER_NO_CONTAINER)
        return 1;
    /* A forced removal works in every state, so BAD_STATE means that the state has just changed. */
    return reply.reason == DOCKER_REMOVING || reply.reason == DOCKER_BAD_STATE ? 0 : r;
}

/*
 * Docker starts a program to kill a container, a third of the time of its removal. If the container
 * runs on this machine, a signal does the same, and the engine notices the end like any other. If
 * this fails, or the container is paused and does not react, the removal kills it.
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

/* A stopped container is removed at once. If another program removes it, this waits for the end. */
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

/* Each line of the label is the warning about one missing cache. */
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

    r = container_find_and_inspect(d, id, by, &container, &doc, &why);
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

/* ---- volumes and network ---- */

struct container_making {
    struct docker_engine *d;
    const struct sandbox_request *req;
    struct body_volume volumes[VOLUMES_MAX];
    size_t n_volumes;
    char **names;   /* of the volumes; owned */
    char *network;  /* id; NULL: none */
    char **without; /* a warning for each missing cache */
    bool layered;   /* one of the volumes is an overlay */
    bool plain;     /* do not use overlays */
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

/* A cache that cannot be created is a warning, or an error with cache.required. */
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
        return err_wrap(err, "cache '%s' is required (cache.required) and cannot be created", what);
    }
    strv_push(&m->without, xasprintf("cache '%s' is missing: %s", what, why.msg));
    return 0;
}

/* A base that cannot be used is a warning too: the tool then has a private cache only. */
static int container_add_layer(struct container_making *m, const struct cache_tool *t,
                               const struct deadline *by, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    _cleanup_free_ char *name = NULL;
    int r = layer_ensure(m->d, m->req, t, by, &name, &why);

    if (r == 0)
        return 0;
    if (r > 0) {
        container_add_volume(m, name, t->target, false);
        m->layered = true;
        return 0;
    }
    if (m->d->cache_required) {
        err_move(err, &why);
        return err_wrap(err, "cache '%s' is required (cache.required) and cannot be created",
                        t->name);
    }
    strv_push(&m->without,
              xasprintf("cache '%s' does not use the shared base: %s", t->name, why.msg));
    return 0;
}

static int container_add_layers(struct container_making *m, const struct deadline *by,
                                struct err *err)
{
    const struct cache_tool *t;

    for (size_t i = 0; !m->plain && (t = cache_tool_at(i)); i++) {
        enum spec_cache_mode mode = cache_mode_of(&m->req->spec, t);
        int r;

        if (mode != CACHE_LAYERED && mode != CACHE_READONLY)
            continue;
        r = container_add_layer(m, t, by, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* All private caches below /cache share one volume; each cache elsewhere has its own. */
static int container_add_private_caches(struct container_making *m, const struct deadline *by,
                                        struct err *err)
{
    _cleanup_free_ char *name = xasprintf("%s-caches-%s", m->d->prefix, m->req->name);
    const struct cache_tool *t;
    bool wanted = false;
    int r;

    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        _cleanup_free_ char *own = xasprintf("%s.%s", name, t->name);
        enum spec_cache_mode mode = cache_mode_of(&m->req->spec, t);

        if (mode != CACHE_PRIVATE && mode != CACHE_LAYERED)
            continue;
        if (cache_is_below_root(t)) {
            wanted = true;
            continue;
        }
        r = container_add_cache(m, t->name, own, t->target, false, by, err);
        if (r < 0)
            return r;
    }
    if (!wanted || m->req->ephemeral)
        return 0;
    return container_add_cache(m, "private", name, "/cache", false, by, err);
}

static int container_add_shared_caches(struct container_making *m, const struct deadline *by,
                                       struct err *err)
{
    const struct cache_tool *t;

    for (size_t i = 0; (t = cache_tool_at(i)); i++) {
        const char *group = cache_group_of(&m->req->spec, t);
        _cleanup_free_ char *name =
            xasprintf("%s-cache-%s%s%s", m->d->prefix, t->name, *group ? "." : "", group);
        int r;

        if (cache_mode_of(&m->req->spec, t) != CACHE_SHARED)
            continue;
        r = container_add_cache(m, t->name, name, t->target, true, by, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* An ephemeral sandbox needs no volume for its home. */
static int container_add_home(struct container_making *m, const struct deadline *by,
                              struct err *err)
{
    _cleanup_free_ char *name = xasprintf("%s-home-%s", m->d->prefix, m->req->name);
    int r;

    if (m->req->ephemeral)
        return 0;
    r = ensure_volume(m->d, name, m->req->id, by, err);
    if (r < 0)
        return r;
    container_add_volume(m, name, "/home/agent", false);
    return 0;
}

/* An engine has no id map for a mount: files of root inside belong to root on the host. */
static bool container_refuses_root(const struct container_making *m)
{
    return !m->d->own_ids && sandbox_spec_squashes_root(&m->req->spec);
}

static int container_check_user(const struct container_making *m, struct err *err)
{
    if (!container_refuses_root(m) || !spec_user_is_root(m->req->spec.user))
        return 0;
    err_set(err, ERR_DENIED,
            "user '%s': a sandbox with a writable mount cannot run as root on this engine, because "
            "its files would belong to root of this machine",
            m->req->spec.user);
    return err_hint(err, "Use another user, a read-only mount, or the mount's option "
                         "'no_root_squash'.");
}

static int container_ensure_parts(struct container_making *m, const struct deadline *by,
                                  struct err *err)
{
    int r;

    r = docker_verify_spec(m->d, &m->req->spec, err); /* also before each start */
    if (r < 0)
        return r;
    r = container_check_user(m, err);
    if (r < 0)
        return r;
    r = container_add_home(m, by, err);
    if (r < 0)
        return r;
    r = container_add_private_caches(m, by, err);
    if (r < 0)
        return r;
    r = container_add_shared_caches(m, by, err);
    if (r < 0)
        return r;
    r = container_add_layers(m, by, err);
    if (r < 0)
        return r;
    if (m->req->spec.network == SPEC_NETWORK_OPEN)
        return ensure_network(m->d, by, &m->network, err);
    return 0;
}

/* ---- creating ---- */

static int container_post_create(const struct container_making *m, const struct body_parts *p,
                                 const struct deadline *by, char **ret, struct err *err)
{
    _cleanup_free_ char *name = xasprintf("%s-%s", m->d->prefix, m->req->name);
    _cleanup_free_ char *path = docker_path("/containers/create?name=%s", name);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    _cleanup_json_ json_t *body = body_container(p);
    int r;

    if (!body)
        return err_set(err, ERR_INVALID, "spec: a value is not valid UTF-8");
    r = docker_ask(m->d, "POST", path, body, by, &reply, err);
    if (r < 0 && reply.reason == DOCKER_NAME_TAKEN) {
        err_wrap(err, "container name '%s': already in use by another container", name);
        return err_hint(err, "Remove that container, or choose other names with 'docker.prefix' in "
                             "ripcord.yaml.");
    }
    if (r < 0)
        return r;
    *ret = xstrdup(docker_text(reply.json, "Id"));
    return 0;
}

static void container_undo(const struct container_making *m, const char *container)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct deadline by = deadline_in(UNDO_TIMEOUT);

    if (container_remove(m->d, container, &by, &err) < 0)
        log_debug("sandbox %s: cannot undo a failed create: %s", m->req->name, err.msg);
}

/*
 * Docker takes the text of the profile, Podman the path of a file on its machine. The file is
 * written each time: that is cheap, and the run folder may have been cleaned. Podman on another
 * machine cannot read it and uses its own profile.
 */
static int container_give_profile(const struct container_making *m, struct body_parts *p,
                                  char **ret_file, struct err *err)
{
    bool no_set_id = sandbox_spec_writes_to_host(&m->req->spec);
    const char *profile = m->d->profiles[no_set_id ? SECCOMP_NO_SET_ID : SECCOMP_SET_ID];
    int r;

    p->seccomp = profile;
    if (!p->podman)
        return 0;
    p->seccomp = NULL;
    if (docker_client(m->d)->endpoint.transport != DOCKER_UNIX)
        return 0;
    *ret_file = xasprintf("%s/seccomp%s.json", m->d->run_dir, no_set_id ? "-no-set-id" : "");
    pthread_mutex_lock(&m->d->lock);
    r = file_replace(AT_FDCWD, *ret_file, profile, strlen(profile), 0600, false, err);
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
        .no_root = container_refuses_root(m),
        .podman = docker_client(d)->flavour == DOCKER_FLAVOUR_PODMAN,
        .caps = d->engine.caps,
        .cpus = d->cpus,
        .nofile_max = docker_hard_limit(RLIMIT_NOFILE, UINT32_MAX),
        .nproc_max = docker_hard_limit(RLIMIT_NPROC, NPROC_MAX),
    };
    int r;

    r = container_give_profile(m, &p, &file, err);
    if (r < 0)
        return r;
    r = container_post_create(m, &p, by, &container, err);
    if (r < 0)
        return r;
    r = guest_program_install(d, &p, container, by, err);
    if (r < 0) {
        container_undo(m, container);
        return r;
    }
    container_remember(d, m->req->id, container);
    return 0;
}

/* Removes or keeps a container of an older spec. 1: the container has this spec; 0: none is there
 * now. */
static int container_drop_outdated(struct docker_engine *d, const struct sandbox_request *req,
                                   const struct deadline *by, struct err *err)
{
    _cleanup_free_ char *container = NULL;
    _cleanup_json_ json_t *doc = NULL;
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    r = container_find_and_inspect(d, req->id, by, &container, &doc, &why);
    if (r == -ERR_NOT_FOUND) {
        container_forget(d, req->id);
        return 0;
    }
    if (r < 0)
        return err_move(err, &why);
    if (STREQ(docker_text(json_object_get(json_object_get(doc, "Config"), "Labels"), LABEL_HASH),
              req->hash))
        return 1;
    r = req->keep ? docker_keep(d, req, container, by, err)
                  : container_remove(d, container, by, err);
    container_forget(d, req->id);
    return r;
}

/* The sandbox's folder in our state, with the full spec: the engine has only a part in a label. */
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
    int r = container_ensure_parts(m, by, err);

    return r < 0 ? r : container_make(m, by, err);
}

/* Only the attempt shows whether the engine can mount overlays. If it fails, the container is
 * created without them. */
static int container_make_all(struct docker_engine *d, const struct sandbox_request *req,
                              const struct deadline *by, struct err *err)
{
    _cleanup_(container_making_done) struct container_making m = {.d = d, .req = req};
    _cleanup_(container_making_done) struct container_making plain = {
        .d = d, .req = req, .plain = true};
    _cleanup_err_ struct err why = ERR_INIT;
    if (container_make_with(&m, by, &why) >= 0)
        return 0;
    if (!m.layered || d->cache_required)
        return err_move(err, &why);
    strv_push(&plain.without, xasprintf("caches do not use the shared bases: %s", why.msg));
    if (container_make_with(&plain, by, NULL) >= 0)
        return 0;
    return err_move(err, &why);
}

static int container_create(struct docker_engine *d, const struct sandbox_request *req,
                            const struct deadline *by, struct err *err)
{
    int r;

    r = req->fresh ? docker_verify(&d->engine, req, by, err) : 0;
    if (r < 0)
        return r;
    r = docker_folders(d, err);
    if (r < 0)
        return r;
    r = container_make_folder(d, req, err);
    if (r < 0)
        return r;
    if (!req->fresh) {
        r = container_drop_outdated(d, req, by, err);
        if (r != 0)
            return r;
    }
    return container_make_all(d, req, by, err);
}

int docker_create(struct engine *e, const struct sandbox_request *req, const struct deadline *by,
                  struct err *err)
{
    if (container_create(docker_of(e), req, by, err) >= 0)
        return 0;
    if (req->fresh) {
        struct deadline undo = deadline_in(UNDO_TIMEOUT);

        docker_remove(e, req->id, &undo, NULL);
    }
    return err_wrap(err, "create sandbox '%s'", req->name);
}

/*
 * The Docker engine: connecting, capabilities, images, disk usage. container.c has the containers,
 * launch.c their runs, objects.c the lists of objects, events.c the engine's events.
 */
#include "daemon/engine/docker/backend.h"
#include "daemon/engine/docker/build.h"
#include "daemon/engine/docker/doctor.h"
#include "daemon/engine/docker/images.h"
#include "daemon/engine/docker/layers.h"
#include "daemon/engine/docker/profile.h"
#include "daemon/engine/docker/recreate.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>

#include "daemon/engine/sandbox-request.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/usage.h"
#include "lib/base/xalloc.h"

#define PIN_FILE "docker/engine"
enum { PIN_MAX = 4096 };

/* ---- requests ---- */

const struct docker *docker_client(struct docker_engine *d)
{
    const struct docker *c;

    pthread_mutex_lock(&d->lock);
    c = d->n_clients ? d->clients[d->n_clients - 1] : NULL;
    pthread_mutex_unlock(&d->lock);
    return c;
}

struct deadline docker_by(const struct docker_engine *d, const struct deadline *by)
{
    struct deadline one = deadline_in(d->timeout);

    return one.at < by->at ? one : *by;
}

bool docker_owns(const struct docker_engine *d, const char *id, const json_t *labels)
{
    return STREQ(docker_text(labels, LABEL_ROOT), d->root_id) &&
           STREQ(docker_text(labels, LABEL_ID), id);
}

int docker_ask(struct docker_engine *d, const char *method, const char *path, const json_t *body,
               const struct deadline *by, struct docker_reply *ret, struct err *err)
{
    struct deadline one = docker_by(d, by);

    return docker_call(docker_client(d), method, path, body, &one, ret, err);
}

/* ---- opening ---- */

static int backend_open_folder(const char *parent, const char *name, int *ret, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", parent, name);
    int r;

    if (*ret >= 0)
        return 0;
    r = dir_make_all(AT_FDCWD, path, 0700, err);
    if (r < 0)
        return r;
    return dir_open(AT_FDCWD, path, ret, err);
}

/* With the lock held. */
static int backend_open_folders(struct docker_engine *d, struct err *err)
{
    int r;

    r = backend_open_folder(d->state_dir, "docker/execs", &d->execs, err);
    if (r < 0)
        return r;
    r = backend_open_folder(d->run_dir, "docker", &d->runs, err);
    if (r < 0)
        return r;
    d->supervisors.runs = d->runs;
    if (d->devnull < 0)
        d->devnull = open("/dev/null", O_RDWR | O_CLOEXEC);
    return d->devnull < 0 ? err_sys(err, errno, "open '/dev/null'") : 0;
}

int docker_folders(struct docker_engine *d, struct err *err)
{
    int r;

    pthread_mutex_lock(&d->lock);
    r = backend_open_folders(d, err);
    pthread_mutex_unlock(&d->lock);
    return r;
}

static const char *backend_env_get(const char *name)
{
    return getenv(name);
}

static void backend_take_client(struct docker_engine *d, struct docker *c)
{
    pthread_mutex_lock(&d->lock);
    d->clients = xreallocarray(d->clients, d->n_clients + 1, sizeof(struct docker *));
    d->clients[d->n_clients++] = c;
    pthread_mutex_unlock(&d->lock);
}

/*
 * The address of the engine that has our sandboxes. While there are sandboxes, this engine is used,
 * unless the configuration names one. Otherwise the environment of the user that starts the daemon,
 * or the engine that answers first, would decide where they are looked for. NULL: any engine.
 */
static char *backend_pinned(struct docker_engine *d)
{
    _cleanup_free_ char *path = xasprintf("%s/" PIN_FILE, d->state_dir);
    _cleanup_strv_ char **ids = NULL;
    char *text = NULL;

    if (*d->host || sandbox_ids_add(d->execs, &ids, NULL) < 0 || !ids)
        return NULL;
    file_read(AT_FDCWD, path, PIN_MAX, &text, NULL, NULL);
    return text;
}

static void backend_pin(struct docker_engine *d, const char *where)
{
    _cleanup_free_ char *path = xasprintf("%s/" PIN_FILE, d->state_dir);
    _cleanup_err_ struct err err = ERR_INIT;

    if (file_replace(AT_FDCWD, path, where, strlen(where), 0600, false, &err) < 0)
        log_debug("engine docker: %s", err.msg);
}

static int backend_connect_to(struct docker_engine *d, const char *pinned,
                              const struct deadline *by, struct docker **ret, struct err *err)
{
    _cleanup_endpoint_ struct docker_endpoint endpoint = {0};
    int r;

    r = pinned ? docker_endpoint_parse(pinned, &endpoint, err)
               : docker_endpoint_find(d->host, backend_env_get, &endpoint, err);
    if (r < 0)
        return r;
    return docker_open(&endpoint, by, ret, err);
}

static int backend_connect_engine(struct docker_engine *d, const struct deadline *by,
                                  struct docker **ret, struct err *err)
{
    _cleanup_free_ char *pinned = backend_pinned(d);
    int r = backend_connect_to(d, pinned, by, ret, err);

    if (r < 0)
        return pinned ? err_wrap(err, "engine of the existing sandboxes") : r;
    if (!pinned)
        backend_pin(d, (*ret)->where);
    return 0;
}

int docker_reconnect(struct docker_engine *d, const struct deadline *by, struct err *err)
{
    _cleanup_(docker_closep) struct docker *c = NULL;
    const struct docker *old;
    int r;

    r = docker_open(&docker_client(d)->endpoint, by, &c, err);
    if (r < 0)
        return r;
    ensured_forget_all(&d->ensured);
    /* Workers may still use the old client, so it stays. After an upgrade a new one is added. */
    old = docker_client(d);
    if (!STREQ(c->where, old->where) || c->flavour != old->flavour || c->api != old->api ||
        !STREQ(c->version, old->version))
        backend_take_client(d, TAKE_PTR(c));
    return 0;
}

static const struct {
    const char *key;
    uint32_t cap;
} info_caps[] = {
    {"MemoryLimit", ENGINE_CAP_MEMORY_LIMIT},
    {"CpuCfsQuota", ENGINE_CAP_CPU_LIMIT},
    {"PidsLimit", ENGINE_CAP_PIDS_LIMIT},
};

/* Whether --storage-opt size can work. On overlay2 that depends on mount options: create fails. */
static bool backend_has_quota(const json_t *info)
{
    static const char *const drivers[] = {"btrfs", "zfs", "devicemapper", "windowsfilter"};
    const json_t *pair;
    size_t i;

    for (i = 0; i < ARRAY_SIZE(drivers); i++)
        if (STREQ(docker_text(info, "Driver"), drivers[i]))
            return true;
    json_array_foreach (json_object_get(info, "DriverStatus"), i, pair) {
        const char *key = json_string_value(json_array_get(pair, 0));
        const char *value = json_string_value(json_array_get(pair, 1));

        if (key && value && STREQ(key, "Backing Filesystem") && STREQ(value, "xfs"))
            return true;
    }
    return false;
}

/*
 * Whether the containers run under the daemon's kernel, so that their network namespaces can be
 * entered. That is false for an engine across a network, and for Docker Desktop, which runs a
 * virtual machine behind a local socket. The relay checks each container again.
 */
static bool backend_shares_kernel(const struct docker *c, const json_t *info)
{
    struct utsname us;

    return c->endpoint.transport == DOCKER_UNIX && uname(&us) == 0 &&
           STREQ(docker_text(info, "KernelVersion"), us.release);
}

/* Rootless engines, and Docker with `userns-remap`. */
static bool backend_has_own_ids(const json_t *info)
{
    static const char *const options[] = {"name=rootless", "name=userns"};
    const json_t *item;
    size_t i;

    json_array_foreach (json_object_get(info, "SecurityOptions"), i, item)
        for (size_t k = 0; json_is_string(item) && k < ARRAY_SIZE(options); k++) {
            size_t len = strlen(options[k]);
            const char *text = json_string_value(item);

            if (strncmp(text, options[k], len) == 0 && (text[len] == '\0' || text[len] == ','))
                return true;
        }
    return false;
}

bool docker_runtime_is_plain(const char *name)
{
    static const char *const plain[] = {"" /* Podman may not report it */, "runc", "crun",
                                        "io.containerd.runc.v2"};

    for (size_t i = 0; i < ARRAY_SIZE(plain); i++)
        if (STREQ(name, plain[i]))
            return true;
    return false;
}

static bool backend_names_gvisor(const char *text)
{
    return strstr(text, "runsc") || strstr(text, "gvisor");
}

/* A runtime has any name. Its program, or the type of its shim, is named as its makers do. */
bool docker_runtime_is_gvisor(const json_t *info, const char *name)
{
    const char *which = name ? name : docker_text(info, "DefaultRuntime"), *program;
    const json_t *r = json_object_get(json_object_get(info, "Runtimes"), which);

    program = strrchr(docker_text(r, "path"), '/');
    return backend_names_gvisor(which) || backend_names_gvisor(docker_text(r, "runtimeType")) ||
           backend_names_gvisor(program ? program : docker_text(r, "path"));
}

int docker_needs_readable_programs(struct docker_engine *d, const char *runtime,
                                   const struct deadline *by, bool *ret, struct err *err)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int r;

    *ret = false;
    if (runtime ? docker_runtime_is_plain(runtime) : d->plain)
        return 0;
    r = docker_ask(d, "GET", "/info", NULL, by, &reply, err);
    if (r < 0)
        return err_wrap(err, "read the engine's runtimes");
    *ret = docker_runtime_is_gvisor(reply.json, runtime);
    return 0;
}

static void backend_take_caps(struct docker_engine *d, const struct docker *c, const json_t *info)
{
    uint32_t caps = ENGINE_CAP_PAUSE | ENGINE_CAP_PTY | ENGINE_CAP_STATS | ENGINE_CAP_NET_OPEN |
                    ENGINE_CAP_NET_PACKAGES | ENGINE_CAP_IMAGES;

    for (size_t i = 0; i < ARRAY_SIZE(info_caps); i++)
        if (json_is_true(json_object_get(info, info_caps[i].key)))
            caps |= info_caps[i].cap;
    if (c->flavour == DOCKER_FLAVOUR_DOCKER) /* Podman accepts both options and ignores them */
        caps |= ENGINE_CAP_RUNTIME | ENGINE_CAP_NET_ISOLATED;
    if (backend_has_quota(info))
        caps |= ENGINE_CAP_DISK_LIMIT;
    d->engine.caps = caps;
    d->engine.cache_modes = (1U << CACHE_MODES) - 1;
    d->cpus = (uint32_t)json_integer_value(json_object_get(info, "NCPU"));
    d->near = backend_shares_kernel(c, info);
    d->own_ids = backend_has_own_ids(info);
    d->plain = docker_runtime_is_plain(docker_text(info, "DefaultRuntime"));
}

static int backend_read_info(struct docker_engine *d, const struct deadline *by, struct err *err)
{
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    const struct docker *c = docker_client(d);
    int r;

    r = docker_ask(d, "GET", "/info", NULL, by, &reply, err);
    if (r < 0)
        return err_wrap(err, "read the engine's capabilities");
    backend_take_caps(d, c, reply.json);
    free(d->engine.about);
    d->engine.about = xasprintf("%s %s, API 1.%u, at %s", docker_flavour_name(c->flavour),
                                c->version, c->api, c->where);
    free(d->data_dir);
    d->data_dir = NULL;
    if (c->endpoint.transport == DOCKER_UNIX && *docker_text(reply.json, "DockerRootDir") == '/')
        d->data_dir = xstrdup(docker_text(reply.json, "DockerRootDir"));
    return 0;
}

static int backend_open(struct engine *e, const struct deadline *by, struct err *err)
{
    struct docker_engine *d = docker_of(e);
    _cleanup_(docker_closep) struct docker *c = NULL;
    struct deadline soon = docker_by(d, by);
    int r;

    r = docker_folders(d, err);
    if (r < 0)
        return r;
    r = backend_connect_engine(d, &soon, &c, err);
    if (r < 0)
        return r;
    backend_take_client(d, TAKE_PTR(c));
    r = backend_read_info(d, by, err);
    if (r < 0)
        return r;
    layers_tidy(d, by);
    if (!d->watcher)
        d->watcher = watcher_new(d);
    return 0;
}

static struct engine *backend_make(const struct engine_config *config)
{
    struct docker_engine *d = xnew0(struct docker_engine);

    d->execs = d->runs = d->devnull = -1;
    pthread_mutex_init(&d->lock, NULL);
    supervisors_init(&d->supervisors);
    ensured_init(&d->ensured);
    d->state_dir = xstrdup(config->state_dir);
    d->run_dir = xstrdup(config->run_dir);
    for (size_t i = 0; i < ARRAY_SIZE(d->profiles); i++)
        d->profiles[i] = profile_text((enum seccomp_variant)i);
    d->root_id = xstrdup(config->root_id);
    d->libexec_dir = xstrdup(config->libexec_dir);
    d->host = xstrdup(config->docker.host);
    d->prefix = xstrdup(config->docker.prefix);
    d->image = xstrdup(config->docker.image);
    d->label = xstrdup(config->docker.label ? config->docker.label : "");
    legacy_copy(&d->legacy, &config->docker.legacy);
    d->timeout = config->docker.timeout;
    d->cache_required = config->cache_required;
    d->journal_budget = config->journal_budget;
    d->engine.exec_root = xasprintf("%s/docker/execs", config->state_dir);
    return &d->engine;
}

static void backend_close(struct engine *e)
{
    struct docker_engine *d = e ? docker_of(e) : NULL;
    void *container;

    if (!d)
        return;
    watcher_free(d->watcher);
    for (size_t i = 0; i < d->n_clients; i++)
        docker_close(d->clients[i]);
    free(d->clients);
    for (size_t i = 0; map_next(&d->containers, &i, NULL, &container);)
        free(container);
    map_done(&d->containers);
    ensured_done(&d->ensured);
    supervisors_done(&d->supervisors);
    fd_close(d->execs);
    fd_close(d->runs);
    fd_close(d->devnull);
    pthread_mutex_destroy(&d->lock);
    free(d->engine.exec_root);
    free(d->engine.about);
    free(d->data_dir);
    free(d->state_dir);
    free(d->run_dir);
    free(d->root_id);
    for (size_t i = 0; i < ARRAY_SIZE(d->profiles); i++)
        free(d->profiles[i]);
    free(d->libexec_dir);
    free(d->host);
    free(d->prefix);
    free(d->image);
    free(d->label);
    legacy_done(&d->legacy);
    free(d);
}

/* ---- images ---- */

static int backend_check(const struct engine *e, const struct sandbox_spec *spec, struct err *err)
{
    if (!spec->image || !STREQ(spec->image, "host"))
        return 0;
    err_set(err, ERR_UNSUPPORTED, "image 'host': not available on engine '%s'", e->ops->name);
    return err_hint(err, "Use image 'default' or another image of this engine, or use the native "
                         "engine.");
}

static int backend_resolve(struct engine *e, const struct sandbox_spec *spec,
                           const struct deadline *by, char **ret, struct err *err)
{
    struct docker_engine *d = docker_of(e);
    const char *name = STREQ(spec->image, e->ops->default_image) ? d->image : spec->image;
    _cleanup_free_ char *path = docker_path("/images/%s/json", name);
    _cleanup_reply_ struct docker_reply reply = DOCKER_REPLY_INIT;
    int r;

    r = backend_check(e, spec, err);
    if (r < 0)
        return r;
    r = docker_ask(d, "GET", path, NULL, by, &reply, err);
    if (r < 0 && reply.reason == DOCKER_NO_IMAGE) {
        err_wrap(err, "image '%s'", name);
        return STREQ(name, d->image)
                   ? err_hint(err, "Build it with './dev image' in the ripcord sources, or set "
                                   "'docker.image' in ripcord.yaml to another image.")
                   : err_hint(
                         err,
                         "Load the image into the engine first, for example with 'docker pull %s'.",
                         name);
    }
    if (r < 0)
        return err_wrap(err, "image '%s'", name);
    if (!*docker_text(reply.json, "Id"))
        return err_set(err, ERR_ENGINE, "image '%s': the engine's answer has no id", name);
    *ret = xstrdup(docker_text(reply.json, "Id"));
    return 0;
}

/* ---- supervisor and disk usage ---- */

static int backend_connect(struct engine *e, const char *id, const struct deadline *by,
                           struct engine_sandbox *ret, struct err *err)
{
    struct docker_engine *d = docker_of(e);
    int r = docker_folders(d, err);

    return r < 0 ? r : supervisors_connect(&d->supervisors, id, by, ret, err);
}

/* Adds the size of a folder of the engine, if it is on the same file system as our state. */
static int backend_add_folder(const struct docker_engine *d, const char *path,
                              const struct deadline *by, struct disk_usage *sum, struct err *err)
{
    struct stat ours, theirs;

    if (*path != '/' || fstat(d->execs, &ours) < 0 || stat(path, &theirs) < 0 ||
        ours.st_dev != theirs.st_dev)
        return 0;
    return usage_count(AT_FDCWD, path, by, sum, err);
}

/* The container's own layer and the sandbox's own volumes. */
static int backend_add_container(struct docker_engine *d, const char *id, const struct deadline *by,
                                 struct disk_usage *sum, struct err *err)
{
    _cleanup_free_ char *container = NULL, *shared = xasprintf("%s-cache-", d->prefix);
    _cleanup_json_ json_t *doc = NULL;
    const json_t *data, *m;
    size_t i;
    int r;

    r = container_find(d, id, by, &container, err);
    if (r < 0)
        return r;
    r = container_inspect(d, container, by, &doc, err);
    if (r < 0)
        return r;
    data = json_object_get(json_object_get(doc, "GraphDriver"), "Data");
    r = backend_add_folder(d, docker_text(data, "UpperDir"), by, sum, err);
    if (r < 0)
        return r;
    json_array_foreach (json_object_get(doc, "Mounts"), i, m) {
        if (!STREQ(docker_text(m, "Type"), "volume") ||
            strncmp(docker_text(m, "Name"), shared, strlen(shared)) == 0)
            continue;
        r = backend_add_folder(d, docker_text(m, "Source"), by, sum, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int docker_note(struct engine *e, const char *id, const char *spec_text, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/" SPEC_FILE, id);

    return file_replace(docker_of(e)->execs, path, spec_text, strlen(spec_text), 0600, false, err);
}

static int backend_usage(struct engine *e, const char *id, const struct deadline *by,
                         struct engine_usage *ret, struct err *err)
{
    struct docker_engine *d = docker_of(e);
    int r = usage_count(d->execs, id, by, &ret->output, err);

    if (r < 0 || docker_client(d)->endpoint.transport != DOCKER_UNIX)
        return r;
    return backend_add_container(d, id, by, &ret->files, err);
}

static void backend_lack(const struct engine *e, uint32_t cap, struct err *ret)
{
    (void)e;
    if (cap == ENGINE_CAP_STRICT) {
        err_set(ret, ERR_UNSUPPORTED, "containers of one image share its files");
        err_hint(ret, "Use a runtime with its own kernel (--runtime kata or runsc), or the native "
                      "engine.");
    } else if (cap & (ENGINE_CAP_MEMORY_LIMIT | ENGINE_CAP_CPU_LIMIT | ENGINE_CAP_PIDS_LIMIT)) {
        err_set(ret, ERR_UNSUPPORTED, "it has no cgroup controller for it");
        err_hint(ret, "Enable the cgroup controllers memory, cpu and pids for the engine.");
    } else if (cap == ENGINE_CAP_DISK_LIMIT) {
        err_set(ret, ERR_UNSUPPORTED, "it cannot bound the size of a container");
        err_hint(ret, "Leave the disk limit out, or use the native engine.");
    }
}

const struct engine_ops engine_docker_ops = {
    .name = "docker",
    .default_image = "default",
    .connects_closed = true,
    .removes_running = true,
    .make = backend_make,
    .open = backend_open,
    .close = backend_close,
    .lack = backend_lack,
    .doctor = docker_doctor,
    .check = backend_check,
    .resolve = backend_resolve,
    .image = docker_image,
    .build = docker_build,
    .verify = docker_verify,
    .create = docker_create,
    .start = docker_start,
    .connect = backend_connect,
    .look = docker_look,
    .cleanup = docker_cleanup,
    .remove = docker_remove,
    .settle = docker_settle,
    .note = docker_note,
    .usage = backend_usage,
    .cache_publish = docker_cache_publish,
    .cache_list = docker_cache_list,
    .cache_drop = docker_cache_drop,
    .list = docker_list,
    .live = docker_live,
    .end = docker_end,
    .remove_legacy = docker_remove_legacy,
};

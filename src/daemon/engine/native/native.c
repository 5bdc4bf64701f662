/*
 * The native engine: its folders, its capabilities and the files of sandboxes. launch.c starts
 * sandboxes, run.c ends their runs.
 */
#include "daemon/engine/native/native.h"

#include <fcntl.h>
#include <limits.h>
#include <string.h>
#include <sys/stat.h>

#include "daemon/engine/engine-config.h"
#include "daemon/engine/engine-objects.h"
#include "daemon/engine/engine-ops.h"
#include "daemon/engine/native/abilities.h"
#include "daemon/engine/native/cgroup-reaper.h"
#include "daemon/engine/native/confined.h"
#include "daemon/engine/native/delete-queue.h"
#include "daemon/engine/native/doctor.h"
#include "daemon/engine/native/host-image.h"
#include "daemon/engine/native/image.h"
#include "daemon/engine/native/prewarmed.h"
#include "daemon/engine/native/probe.h"
#include "daemon/engine/native/subids.h"
#include "daemon/engine/native/tool-caches.h"
#include "daemon/engine/native/transfer.h"
#include "daemon/engine/sandbox-request.h"
#include "lib/base/fd.h"
#include "lib/base/log.h"
#include "lib/base/strv.h"
#include "lib/base/usage.h"
#include "lib/base/xalloc.h"
#include "lib/os/cgroup.h"
#include "lib/os/ext4-spread.h"
#include "lib/os/overlay.h"
#include "lib/os/quota.h"
#include "lib/os/rmtree.h"
#include "lib/os/seccomp-filter.h"

/* ---- open ---- */

static int native_open_folder(const char *parent, const char *name, int *ret, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/%s", parent, name);
    int r;

    r = dir_make_all(AT_FDCWD, path, 0700, err);
    return r < 0 ? r : dir_open(AT_FDCWD, path, ret, err);
}

static int native_open_folders(struct native_engine *n, struct err *err)
{
    int trash, r;

    r = native_open_folder(n->state_dir, "sandboxes", &n->sandboxes, err);
    if (r < 0)
        return r;
    r = native_open_folder(n->state_dir, "execs", &n->execs, err);
    if (r < 0)
        return r;
    r = native_open_folder(n->run_dir, "sandboxes", &n->runs, err);
    if (r < 0)
        return r;
    r = native_open_folder(n->state_dir, "trash", &trash, err);
    if (r < 0)
        return r;
    n->delete_queue = delete_queue_new(trash);
    ext4_spread_children(n->sandboxes);
    ext4_spread_children(n->execs);
    ext4_spread_children(n->runs);
    n->net.runs = n->runs;
    n->supervisors.runs = n->runs;
    n->devnull = open("/dev/null", O_RDWR | O_CLOEXEC);
    return n->devnull < 0 ? err_sys(err, errno, "open '/dev/null'") : 0;
}

/* Generations of image `host` that runs use, and the current one. */
static int native_images_in_use(struct native_engine *n, char ***ret, struct err *err)
{
    _cleanup_strv_ char **ids = NULL;
    int r;

    r = sandbox_ids_add(n->runs, &ids, err);
    if (r < 0)
        return r;
    strv_add(ret, n->lower);
    for (char **id = ids; id && *id; id++) {
        _cleanup_free_ char *link = xasprintf("%s/lower", *id);
        char target[PATH_MAX];
        ssize_t len = readlinkat(n->runs, link, target, sizeof(target) - 1);

        if (len < 0)
            continue;
        target[len] = '\0';
        strv_add(ret, target);
    }
    return 0;
}

static int native_open_image(struct native_engine *n, struct err *err)
{
    const struct host_image_source src = {.root = "/", .chown_home = n->ranges};
    _cleanup_free_ char *dir = xasprintf("%s/images/host", n->state_dir);
    _cleanup_strv_ char **keep = NULL;
    int r;

    r = host_image_ensure(dir, &src, &n->lower, err);
    if (r < 0)
        return r;
    r = native_images_in_use(n, &keep, err);
    if (r < 0)
        return r;
    host_image_prune(dir, keep);
    return 0;
}

static int native_open_ids(struct native_engine *n, struct err *err)
{
    static const char *const subids[] = {"/etc/subuid", "/etc/subgid", NULL};

    return n->ranges ? ids_init(&n->ids, IDS_FILE, subids, err) : 0;
}

static int native_open_prewarmed(struct native_engine *n, struct err *err)
{
    _cleanup_close_ int sandboxes = -1, execs = -1, runs = -1;
    int r = native_open_folder(n->state_dir, "spares/boxes", &sandboxes, err);

    if (r < 0)
        return r;
    r = native_open_folder(n->state_dir, "spares/execs", &execs, err);
    if (r < 0)
        return r;
    r = native_open_folder(n->run_dir, "spares", &runs, err);
    if (r < 0)
        return r;
    ext4_spread_children(sandboxes);
    ext4_spread_children(execs);
    ext4_spread_children(runs);
    n->prewarmed = prewarmed_new(n->shim, n->devnull, n->quota,
                                 (const int[PREWARMED_KINDS]){
                                     [PREWARMED_SANDBOX] = TAKE_FD(sandboxes),
                                     [PREWARMED_EXECS] = TAKE_FD(execs),
                                     [PREWARMED_RUN] = TAKE_FD(runs),
                                 });
    return 0;
}

/* Without caches, sandboxes start with a warning. */
static void native_open_caches(struct native_engine *n)
{
    _cleanup_err_ struct err err = ERR_INIT;

    if (tool_caches_open(n, &err) < 0)
        log_debug("native: %s", err.msg);
}

static int native_open_parts(struct native_engine *n, struct err *err)
{
    _cleanup_free_ char *shim = xasprintf("%s/ripcord-shim", n->libexec_dir);
    int r;

    n->ranges = probe_id_ranges(IDS_FIRST, (uint64_t)IDS_LEASES * IDS_COUNT);
    if (!n->ranges)
        subids_find(&n->subids, NULL);
    n->engine.cache_modes = (1U << CACHE_MODES) - 1;
    r = native_open_folders(n, err);
    if (r < 0)
        return r;
    r = native_cgroups_open(&n->cgroups, n->run_dir, n->root_id, err);
    if (r < 0)
        return r;
    n->cgroup_reaper = cgroup_reaper_new(&n->cgroups);
    n->quota = quota_possible(n->sandboxes, NULL);
    native_confined_open(n);
    n->engine.caps = native_abilities(n);
    r = native_seal_shim(shim, &n->shim, err);
    if (r < 0)
        return r;
    if (n->subids.uid)
        delete_queue_use_subids(n->delete_queue, n->shim, &n->subids);
    r = native_open_ids(n, err);
    if (r < 0)
        return r;
    r = native_open_image(n, err);
    if (r < 0)
        return r;
    r = native_open_prewarmed(n, err);
    if (r < 0)
        return r;
    native_open_caches(n);
    return 0;
}

/* Restores the state before open: a failed attempt must not disturb the next one. */
static void native_close_parts(struct native_engine *n)
{
    prewarmed_free(TAKE_PTR(n->prewarmed));
    n->sandboxes = fd_close(n->sandboxes);
    n->execs = fd_close(n->execs);
    delete_queue_free(TAKE_PTR(n->delete_queue));
    cgroup_reaper_free(TAKE_PTR(n->cgroup_reaper));
    native_cgroups_close(&n->cgroups);
    n->runs = fd_close(n->runs);
    n->devnull = fd_close(n->devnull);
    n->shared_caches = fd_close(n->shared_caches);
    n->shim = fd_close(n->shim);
    ids_done(&n->ids);
    n->ids = (struct ids){.dirfd = -1};
    free(TAKE_PTR(n->lower));
    err_done(&n->no_confined);
}

static void native_close(struct engine *e)
{
    struct native_engine *n = e ? native_of(e) : NULL;

    if (!n)
        return;
    native_close_parts(n);
    network_done(&n->net);
    supervisors_done(&n->supervisors);
    cache_base_done(&n->base);
    native_transfer_done(n);
    pthread_mutex_destroy(&n->lock);
    free(n->engine.exec_root);
    free(n->state_dir);
    free(n->run_dir);
    free(n->root_id);
    free(n->libexec_dir);
    for (size_t i = 0; i < ARRAY_SIZE(n->filters); i++)
        free(n->filters[i].code);
    free(n);
}

static void native_compile_filters(struct native_engine *n)
{
    for (size_t i = 0; i < ARRAY_SIZE(n->filters); i++) {
        size_t count;

        n->filters[i].code = seccomp_filter_compile((enum seccomp_variant)i, &count);
        n->filters[i].bytes = count * sizeof(struct sock_filter);
    }
}

static struct engine *native_make(const struct engine_config *config)
{
    struct native_engine *n = xnew0(struct native_engine);

    n->sandboxes = n->execs = n->runs = n->devnull = n->shim = n->ids.dirfd = n->shared_caches = -1;
    cache_base_init(&n->base);
    pthread_mutex_init(&n->lock, NULL);
    supervisors_init(&n->supervisors);
    n->state_dir = xstrdup(config->state_dir);
    n->run_dir = xstrdup(config->run_dir);
    n->root_id = xstrdup(config->root_id);
    n->libexec_dir = xstrdup(config->libexec_dir);
    network_init(&n->net, n->root_id);
    n->engine.exec_root = xasprintf("%s/execs", config->state_dir);
    n->journal_budget = config->journal_budget;
    n->image_max = config->image_max;
    n->disk_budget = config->disk_budget;
    n->disk_images = config->disk_images;
    native_compile_filters(n);
    n->cache_required = config->cache_required;
    native_transfer_init(n, &config->transfer);
    return &n->engine;
}

static int native_open(struct engine *e, const struct deadline *by, struct err *err)
{
    struct native_engine *n = native_of(e);
    int r;

    (void)by; /* nothing here waits for another process */
    r = native_open_parts(n, err);
    if (r < 0)
        native_close_parts(n);
    return r;
}

static int native_check(const struct engine *e, const struct sandbox_spec *spec, struct err *err)
{
    int r;

    if (sandbox_spec_is_confined(spec))
        return native_confined_check(spec, err);
    r = native_image_check(e, spec, err);
    return r < 0 ? r
                 : native_check_user_ids(container_of(e, const struct native_engine, engine), spec,
                                         err);
}

/* ---- files of a sandbox: sandbox-files.c creates them ---- */

int native_remove(struct engine *e, const char *id, const struct deadline *by, struct err *err)
{
    struct native_engine *n = native_of(e);

    if (native_end(n, id, by, err) < 0 ||
        delete_queue_add(n->delete_queue, n->sandboxes, id, err) < 0 ||
        delete_queue_add(n->delete_queue, n->execs, id, err) < 0)
        return err_wrap(err, "remove sandbox '%s'", id);
    return 0;
}

static int native_note(struct engine *e, const char *id, const char *spec_text, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("%s/spec", id);

    return file_replace(native_of(e)->sandboxes, path, spec_text, strlen(spec_text), 0600, false,
                        err);
}

static int native_usage(struct engine *e, const char *id, const struct deadline *by,
                        struct engine_usage *ret, struct err *err)
{
    struct native_engine *n = native_of(e);
    int r = usage_count(n->execs, id, by, &ret->output, err);

    return r < 0 ? r : usage_count(n->sandboxes, id, by, &ret->files, err);
}

static void native_read_meta(struct native_engine *n, bool specs, struct engine_object *o)
{
    char text[sizeof(o->hash) + NAME_MAX], *slash;
    _cleanup_free_ char *path = xasprintf("%s/meta", o->id), *spec = xasprintf("%s/spec", o->id);
    ssize_t len = readlinkat(n->sandboxes, path, text, sizeof(text) - 1);

    if (len < 0)
        return;
    text[len] = '\0';
    slash = strchr(text, '/');
    if (!slash || slash - text >= (ssize_t)sizeof(o->hash))
        return;
    *slash = '\0';
    o->whole = true;
    o->kept = native_is_kept(n, o->id);
    o->name = xstrdup(slash + 1);
    memcpy(o->hash, text, (size_t)(slash - text) + 1);
    if (specs)
        file_read(n->sandboxes, spec, SPEC_TEXT_MAX, &o->spec, NULL, NULL);
}

/* A run that has ended has neither folder nor cgroup. */
static void native_add_up(struct engine_objects *l, char *const *ids, char *const *steps)
{
    for (; ids && *ids; ids++) {
        struct engine_object *o = strv_contains(steps, *ids) ? NULL : engine_objects_add(l, *ids);

        if (o)
            o->up = true;
    }
}

/* Called before and after the folders are read: a step that began or ended in between is in one
 * of the two lists, or is gone completely. */
static void native_add_steps(struct native_engine *n, char ***steps)
{
    pthread_mutex_lock(&n->lock);
    for (char **id = n->steps; id && *id; id++)
        strv_add(steps, *id);
    pthread_mutex_unlock(&n->lock);
}

static int native_list(struct engine *e, bool specs, const struct deadline *by,
                       struct engine_objects *ret, struct err *err)
{
    struct native_engine *n = native_of(e);
    _cleanup_strv_ char **ids = NULL, **execs = NULL, **runs = NULL, **groups = NULL,
                        **steps = NULL, **swept = NULL;
    int r;

    native_tidy_network(n, by);
    native_add_steps(n, &steps);
    cgroup_reaper_list(n->cgroup_reaper, &swept);
    r = native_cgroups_list(&n->cgroups, &groups, err);
    if (r < 0)
        return r;
    r = sandbox_ids_add(n->runs, &runs, err);
    if (r < 0)
        return r;
    r = sandbox_ids_add(n->sandboxes, &ids, err);
    if (r < 0)
        return r;
    r = sandbox_ids_add(n->execs, &execs, err);
    if (r < 0)
        return r;
    native_add_steps(n, &steps);
    cgroup_reaper_list(n->cgroup_reaper, &swept);
    for (char **id = ids; id && *id; id++)
        if (!strv_contains(steps, *id))
            native_read_meta(n, specs, engine_objects_add(ret, *id));
    for (char **id = execs; id && *id; id++)
        if (!strv_contains(steps, *id))
            engine_objects_add(ret, *id);
    native_add_up(ret, runs, steps);
    for (char **id = steps; id && *id; id++)
        strv_add(&swept, *id);
    native_add_up(ret, groups, swept); /* the cgroups of the reaper belong to no sandbox any more */
    return 0;
}

const struct engine_ops engine_native_ops = {
    .name = "native",
    .default_image = "host",
    .default_is_fixed = true,
    .starts_fast = true,
    .make = native_make,
    .open = native_open,
    .close = native_close,
    .lack = native_lack,
    .doctor = native_doctor,
    .look_again = native_look_again,
    .check = native_check,
    .resolve = native_resolve,
    .stores_images = true,
    .image = native_image,
    .cache_mounts = native_cache_mounts,
    .build = native_build,
    .builds_digest_only = true,
    .verify = native_verify,
    .create = native_create,
    .start = native_start,
    .connect = native_connect,
    .cleanup = native_cleanup,
    .remove = native_remove,
    .settle = native_settle,
    .note = native_note,
    .usage = native_usage,
    .cache_publish = native_cache_publish,
    .cache_list = native_cache_list,
    .cache_drop = native_cache_drop,
    .list = native_list,
};

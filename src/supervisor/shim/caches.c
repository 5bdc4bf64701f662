#include "supervisor/shim/caches.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/os/mount.h"
#include "lib/os/overlay.h"
#include "lib/os/rmtree.h"
#include "supervisor/shim/mount-point.h"
#include "supervisor/shim/setup-plain.h"

enum { LAYER_PATH_MAX = NAME_MAX + 32 };

/* ---- on the disk ---- */

/* Without a range of ids every file that we make belongs to the caller, who is the agent inside. */
static uint32_t shim_caches_owner_of(const struct plan *plan)
{
    return plan->id_base ? plan->cache_owner : 0;
}

static int shim_caches_make_overlay(const struct plan *plan, int dir, const char *tool,
                                    struct err *err)
{
    char path[LAYER_PATH_MAX], upper[LAYER_PATH_MAX], work[LAYER_PATH_MAX];
    int r;

    snprintf(path, sizeof(path), "caches/%s", tool);
    snprintf(upper, sizeof(upper), "caches/%s/upper", tool);
    snprintf(work, sizeof(work), "caches/%s/work", tool);
    r = layers_folder(dir, "caches", 0700, 0, err);
    if (r < 0)
        return r;
    r = layers_folder(dir, path, 0700, 0, err);
    if (r < 0)
        return r;
    r = layers_folder(dir, upper, 0755, shim_caches_owner_of(plan), err);
    if (r < 0)
        return r;
    return layers_folder(dir, work, 0700, 0, err);
}

/*
 * The base's folders belong to the agent, and tools refuse a cache of another user (pip as root,
 * for example). If the sandbox has another user, we make each tool's folder again in the upper
 * layer. The base's content still shows through, and every user may write to a copy.
 */
static int shim_caches_own_tools(const struct plan *plan, int upper, struct err *err)
{
    char base[PATH_MAX];
    _cleanup_closedir_ DIR *d = NULL;

    snprintf(base, sizeof(base), "%s/cache", plan->cache_base);
    d = opendir(base);
    if (!d)
        return err_sys(err, errno, "read '%s'", base);
    for (const struct dirent *e; (e = readdir(d));) {
        int r;

        if (e->d_name[0] == '.')
            continue;
        r = layers_folder(upper, e->d_name, 0755, shim_caches_owner_of(plan), err);
        if (r < 0)
            return r;
    }
    return 0;
}

static int shim_caches_prepare_main(const struct plan *plan, int dir, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    if (!plan->id_base || plan->cache_owner == PLAN_AGENT_ID)
        return 0;
    r = layers_folder(dir, "root/upper/cache", 0755, shim_caches_owner_of(plan), err);
    if (r < 0)
        return r;
    r = dir_open(dir, "root/upper/cache", &fd, err);
    if (r < 0)
        return r;
    return shim_caches_own_tools(plan, fd, err);
}

static int shim_caches_prepare_one(const struct plan *plan, const struct plan_cache *c, int dir,
                                   struct err *err)
{
    char path[LAYER_PATH_MAX];

    if (c->kind == PLAN_CACHE_HIDDEN || c->kind == PLAN_CACHE_SHARED)
        return 0;
    /* A read-only cache starts empty each time. Without a disk image the daemon has already deleted
     * the old one, because it can act as every user. */
    if (c->kind == PLAN_CACHE_READONLY && plan->disk_image) {
        int r;

        snprintf(path, sizeof(path), "caches/%s", c->tool);
        r = rmtree(dir, path, err);
        if (r < 0)
            return r;
    }
    return shim_caches_make_overlay(plan, dir, c->tool, err);
}

int caches_prepare(const struct plan *plan, int dir, struct err *err)
{
    if (plan->cache_base && shim_caches_prepare_main(plan, dir, err) < 0)
        return err_wrap(err, "prepare the package caches");
    for (size_t i = 0; i < plan->n_caches; i++)
        if (shim_caches_prepare_one(plan, &plan->caches[i], dir, err) < 0)
            return err_wrap(err, "prepare the package caches");
    return 0;
}

/* ---- inside ---- */

/* An overlay even if the lower layer is empty: the mount table then shows no path of the host. */
static int shim_caches_mount_layered(const struct plan_cache *c, int *ret, struct err *err)
{
    char lower[LAYER_PATH_MAX] = "none", upper[LAYER_PATH_MAX], work[LAYER_PATH_MAX];
    struct overlay o = {lower, upper, work, c->kind == PLAN_CACHE_READONLY};

    if (c->kind != PLAN_CACHE_PRIVATE)
        snprintf(lower, sizeof(lower), "base/cache/%s", c->tool);
    snprintf(upper, sizeof(upper), "data/caches/%s/upper", c->tool);
    snprintf(work, sizeof(work), "data/caches/%s/work", c->tool);
    return overlay_mount(&o, ret, err);
}

static int shim_caches_mount_empty(int scaffold, int *ret, struct err *err)
{
    unsigned flags = MOUNT_SAFE | MOUNT_RDONLY;
    _cleanup_close_ int fd = -1;
    int r;

    r = mount_clone(scaffold, "none", flags, &fd, err);
    if (r < 0)
        return r;
    r = mount_set(fd, flags, -1, err);
    if (r < 0)
        return r;
    *ret = TAKE_FD(fd);
    return 0;
}

static int shim_caches_mount_one(const struct plan_cache *c, int shared, bool plain, int scaffold,
                                 int root_fd, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r = 0;

    if (c->kind == PLAN_CACHE_HIDDEN)
        r = shim_caches_mount_empty(scaffold, &fd, err);
    else if (c->kind != PLAN_CACHE_SHARED && plain)
        r = setup_plain_cache(c->tool, &fd, err);
    else if (c->kind != PLAN_CACHE_SHARED)
        r = shim_caches_mount_layered(c, &fd, err);
    if (r < 0)
        return err_wrap(err, "mount the cache of '%s'", c->tool);
    r = mount_point_mount(root_fd, c->target, MOUNT_POINT_FOLDER, fd < 0 ? shared : fd, err);
    return r < 0 ? err_wrap(err, "mount the cache of '%s'", c->tool) : 0;
}

int caches_mount(const struct plan *plan, const struct layers *layers, bool plain, int scaffold,
                 int root_fd, struct err *err)
{
    for (size_t i = 0; i < plan->n_caches; i++) {
        int r = shim_caches_mount_one(&plan->caches[i], layers->fd[LAYER_CACHES + i], plain,
                                      scaffold, root_fd, err);

        if (r < 0)
            return r;
    }
    return 0;
}

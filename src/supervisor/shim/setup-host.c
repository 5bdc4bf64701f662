/*
 * The host's /usr and /opt in a sandbox with image `host`, and /bin, /lib and others where they are
 * folders of their own: each a read-only overlay. The contents
 * are the host's, but an overlay has inodes of its own, and the kernel keeps watches (inotify) and
 * locks with the inode. On the host's inodes a sandbox could see which programs other sandboxes and
 * the host run, signal by locks, and block the host's package manager by a lock or lease.
 *
 * The second layer is the skeleton's folder of the same name. Its few files
 * (src/daemon/engine/native/host-files.c) fill gaps, and the host's files win. It is mostly on the
 * file system of /usr: the overlay then shows one device number for all files, which `du -x` and
 * `tar --one-file-system` need.
 */
#include <fcntl.h>
#include <stdio.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/log.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"
#include "lib/os/mount.h"
#include "lib/os/overlay.h"
#include "supervisor/shim/lower-layers.h"
#include "supervisor/shim/mount-point.h"
#include "supervisor/shim/setup.h"

static const struct setup_host_tree {
    const char *name; /* on the host, in the scaffold and inside */
    int layer;
    bool with_mounts; /* the layer holds the mounts below it, also for root */
} trees[] = {{"usr", LAYER_USR, false}, {"opt", LAYER_OPT, true}};
static const char *const split_names[PLAN_SPLIT_MAX] = {PLAN_SPLIT_NAMES};

/*
 * An overlay does not show what is mounted below its layers, for example a disk at /opt/data. The
 * mounts of our namespace are a locked copy of the host's: the kernel refuses to clone a folder
 * without the mounts below it. Without a range of ids our layers are locked as well, and
 * overlay_mount() fails.
 */
static int setup_host_check_alone(const struct setup_host_tree *t, struct err *err)
{
    _cleanup_free_ char *path = xasprintf("/%s", t->name);
    _cleanup_close_ int alone = -1;

    if (!t->with_mounts || mount_clone(AT_FDCWD, path, 0, &alone, NULL) >= 0)
        return 0;
    return err_set(err, ERR_SYSTEM, "other file systems are mounted below '%s'", path);
}

static int setup_host_mount_overlay(const struct plan *plan, const struct setup_host_tree *t,
                                    int fd, int scaffold, int *ret, struct err *err)
{
    char below[LOWER_BELOW_MAX], lower[LOWER_BELOW_MAX + 8];
    struct overlay o = {.lower = lower};
    int r;

    r = setup_host_check_alone(t, err);
    if (r < 0)
        return r;
    r = mount_point_mkdir(scaffold, t->name, 0755, err);
    if (r < 0)
        return r;
    r = mount_attach(fd, scaffold, t->name, err);
    if (r < 0)
        return r;
    lower_below(plan, t->name, below);
    snprintf(lower, sizeof(lower), "%s:%s", t->name, below);
    return overlay_mount(&o, ret, err);
}

/* Where no overlay is possible, the tree itself is mounted: the sandbox is then as usable as
 * before, and docs/threat-model.md says what it can notice. */
static int setup_host_mount_tree(const struct plan *plan, const struct setup_host_tree *t, int fd,
                                 int scaffold, int root_fd, struct err *err)
{
    _cleanup_err_ struct err why = ERR_INIT;
    _cleanup_close_ int overlay = -1;

    if (GUARD("own inodes") && setup_host_mount_overlay(plan, t, fd, scaffold, &overlay, &why) < 0)
        log_warn("'/%s' is shared with other sandboxes, which can see who opens its files: %s",
                 t->name, why.msg);
    return mount_point_mount(root_fd, t->name, MOUNT_POINT_FOLDER, overlay >= 0 ? overlay : fd,
                             err);
}

int setup_host_trees(const struct plan *plan, const struct layers *layers, int scaffold,
                     int root_fd, struct err *err)
{
    int r = 0;

    for (size_t i = 0; i < ARRAY_SIZE(trees) && r >= 0; i++)
        if (layers->fd[trees[i].layer] >= 0)
            r = setup_host_mount_tree(plan, &trees[i], layers->fd[trees[i].layer], scaffold,
                                      root_fd, err);
    for (int i = 0; i < PLAN_SPLIT_MAX && r >= 0; i++) {
        const struct setup_host_tree t = {split_names[i], LAYER_SPLIT + i, false};

        if (layers->fd[t.layer] >= 0)
            r = setup_host_mount_tree(plan, &t, layers->fd[t.layer], scaffold, root_fd, err);
    }
    return r < 0 ? r : 0;
}

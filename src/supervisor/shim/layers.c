#include "supervisor/shim/layers.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/log.h"
#include "lib/os/idmap.h"
#include "lib/os/mount.h"
#include "supervisor/shim/caches.h"
#include "supervisor/shim/setup.h"
#include "supervisor/shim/start-cause.h"

void layers_init(struct layers *l, const struct plan *plan)
{
    l->n = LAYER_MOUNTS + plan->n_mounts;
    for (size_t i = 0; i < ARRAY_SIZE(l->fd); i++)
        l->fd[i] = -1;
}

void layers_done(struct layers *l)
{
    for (size_t i = 0; i < l->n; i++)
        l->fd[i] = fd_close(l->fd[i]);
}

/* ---- the overlays' own folders ---- */

int layers_folder(int dirfd, const char *path, mode_t mode, uint32_t id, struct err *err)
{
    if (mkdirat(dirfd, path, mode) < 0) {
        if (errno == EEXIST)
            return 0;
        return err_sys(err, errno, "create folder '%s' of the sandbox", path);
    }
    /* umask may have taken bits; the mode of an upper layer is the mode that the sandbox sees. */
    if (fchmodat(dirfd, path, mode, 0) < 0)
        return err_sys(err, errno, "set the mode of '%s'", path);
    if (id && fchownat(dirfd, path, id, id, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "set the owner of '%s'", path);
    return 0;
}

int layers_prepare(const struct plan *plan, int disk, struct err *err)
{
    uint32_t agent = plan->id_base ? PLAN_AGENT_ID : 0;
    _cleanup_close_ int dir = -1;
    int r;

    r = disk >= 0 ? dir_open(disk, ".", &dir, err) : dir_open(AT_FDCWD, plan->data_dir, &dir, err);
    if (r < 0)
        return r;
    r = layers_folder(dir, "root", 0700, 0, err);
    if (r < 0)
        return r;
    r = layers_folder(dir, "root/upper", 0755, 0, err);
    if (r < 0)
        return r;
    r = layers_folder(dir, "root/work", 0700, 0, err);
    if (r < 0)
        return r;
    r = caches_prepare(plan, dir, err);
    if (r < 0 || plan->ephemeral)
        return r;
    r = layers_folder(dir, "home", 0700, 0, err);
    if (r < 0)
        return r;
    r = layers_folder(dir, "home/upper", 0755, agent, err);
    if (r < 0)
        return r;
    return layers_folder(dir, "home/work", 0700, 0, err);
}

/* ---- opening ---- */

/* Without an id map we run in a copy of the mount namespace, where the kernel locks the mounts
 * below a tree: such a tree can only be cloned as a whole. */
static unsigned shim_layers_depth_flag(int userns_fd)
{
    return userns_fd >= 0 ? 0 : MOUNT_RECURSIVE;
}

static int shim_layers_open_tree(const char *path, unsigned flags, int userns_fd, int *ret,
                                 struct err *err)
{
    _cleanup_close_ int fd = -1;

    flags |= shim_layers_depth_flag(userns_fd);
    if (mount_clone(AT_FDCWD, path, flags, &fd, err) < 0 ||
        mount_set(fd, flags, userns_fd, err) < 0)
        return err_wrap(err, "prepare '%s'", path);
    *ret = TAKE_FD(fd);
    return 0;
}

/* A tree of our own: where its file system does not allow the map, the error says what helps. */
static int shim_layers_open_ours(const struct plan *plan, const char *path, unsigned flags,
                                 int userns_fd, int *ret, struct err *err)
{
    int r = shim_layers_open_tree(path, flags, userns_fd, ret, err);

    if (r < 0 && userns_fd >= 0)
        start_cause(plan, START_STEP_IDMAP, path, err);
    return r;
}

/*
 * /usr is id-mapped so that its files belong to the sandbox's root. Some file systems do not
 * support that (overlayfs, if we run in a container ourselves): the files then belong to `nobody`,
 * which only looks odd.
 */
static int shim_layers_open_system_tree(const char *path, int userns_fd, int *ret, struct err *err)
{
    unsigned flags = MOUNT_SAFE | MOUNT_RDONLY;

    if (shim_layers_open_tree(path, flags, userns_fd, ret, NULL) >= 0)
        return 0;
    return shim_layers_open_tree(path, flags | MOUNT_RECURSIVE, -1, ret, err);
}

static int shim_layers_open_split_trees(struct layers *l, int userns_fd, struct err *err)
{
    static const char *const paths[PLAN_SPLIT_MAX] = {PLAN_SPLIT_NAMES};

    for (int i = 0; i < PLAN_SPLIT_MAX; i++) {
        char path[16];
        struct stat st;
        int r;

        snprintf(path, sizeof(path), "/%s", paths[i]);
        if (lstat(path, &st) < 0 || !S_ISDIR(st.st_mode))
            continue;
        r = shim_layers_open_system_tree(path, userns_fd, &l->fd[LAYER_SPLIT + i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* /opt is never mapped: through a mapped tree the sandbox's uid 0 could read root's 0600 files. */
static int shim_layers_open_host_trees(struct layers *l, const struct plan *plan, int userns_fd,
                                       struct err *err)
{
    int r;

    r = shim_layers_open_system_tree("/usr", userns_fd, &l->fd[LAYER_USR], err);
    if (r < 0)
        return r;
    r = shim_layers_open_split_trees(l, userns_fd, err);
    if (r < 0)
        return r;
    if (plan->n_layers || access("/opt", F_OK) < 0)
        return 0;
    return shim_layers_open_tree("/opt", MOUNT_SAFE | MOUNT_RDONLY | MOUNT_RECURSIVE, -1,
                                 &l->fd[LAYER_OPT], err);
}

/* Root on disk is squashed to an id that no process has. Without a line for root, the kernel would
 * refuse writes to what root owns, whatever its mode is. */
static const struct ns_map squashed_root = {0, PLAN_SQUASHED_ID, 1, NULL};

/* The owner on disk becomes the agent. */
static struct ns_map shim_layers_map(const struct plan *plan, const struct plan_mount *m,
                                     uint32_t owner)
{
    struct ns_map map = {owner, plan->id_base + PLAN_AGENT_ID, 1, NULL};

    if (owner == 0 && !m->read_only && !m->no_root_squash && GUARD("root squash")) {
        map.inner = PLAN_SQUASHED_ID;
        map.next = &squashed_root;
    }
    return map;
}

/* Ids of that tree that are not mapped show as `nobody`. */
static int shim_layers_mount_userns(const struct plan *plan, const struct plan_mount *m,
                                    const struct stat *st, int *ret, struct err *err)
{
    struct ns_map uid = shim_layers_map(plan, m, st->st_uid);
    struct ns_map gid = shim_layers_map(plan, m, st->st_gid);

    return idmap_userns(&uid, &gid, ret, err);
}

static int shim_layers_open_source(const struct plan_mount *m, struct stat *st, int *ret,
                                   struct err *err)
{
    bool exact = GUARD("sources");
    struct open_how how = {.flags = O_PATH | O_CLOEXEC,
                           .resolve = exact ? RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS : 0};
    _cleanup_close_ int fd = (int)syscall(SYS_openat2, AT_FDCWD, m->source, &how, sizeof(how));

    if (fd < 0)
        return err_sys(err, errno, "open mount source '%s'", m->source);
    if (fstat(fd, st) < 0)
        return err_sys(err, errno, "stat mount source '%s'", m->source);
    if (exact && m->ino && (st->st_ino != m->ino || st->st_dev != m->dev))
        return err_set(err, ERR_CONFLICT, "mount source '%s' was replaced after it was checked",
                       m->source);
    /* A socket is allowed only if a process of ours listens on it. */
    if (!S_ISDIR(st->st_mode) && !S_ISREG(st->st_mode) && !(m->ours && S_ISSOCK(st->st_mode)))
        return err_set(err, ERR_DENIED, "mount source '%s' is neither a folder nor a file",
                       m->source);
    *ret = TAKE_FD(fd);
    return 0;
}

static int shim_layers_clone_mount(const struct plan *plan, const struct plan_mount *m,
                                   int userns_fd, int *ret, struct err *err)
{
    unsigned flags = MOUNT_SAFE | (m->read_only && GUARD("read-only") ? MOUNT_RDONLY : 0) |
                     shim_layers_depth_flag(userns_fd);
    _cleanup_close_ int source = -1, map = -1;
    struct stat st;
    int r;

    r = shim_layers_open_source(m, &st, &source, err);
    if (r < 0)
        return r;
    if (userns_fd >= 0 && !m->ours) {
        r = shim_layers_mount_userns(plan, m, &st, &map, err);
        if (r < 0)
            return r;
    }
    r = mount_clone(source, "", flags, ret, err);
    if (r < 0)
        return r;
    r = mount_set(*ret, flags, m->ours ? userns_fd : map, err);
    if (r < 0)
        start_cause(plan, START_STEP_IDMAP, m->source, err);
    return r;
}

static int shim_layers_open_mount(const struct plan *plan, const struct plan_mount *m,
                                  int userns_fd, int *ret, struct err *err)
{
    _cleanup_close_ int fd = -1;

    if (shim_layers_clone_mount(plan, m, userns_fd, &fd, err) < 0)
        return err_wrap(err, "mount '%s' at '%s'", m->source, m->target);
    *ret = TAKE_FD(fd);
    return 0;
}

/* All caches belong to the agent on the disk, so the sandbox's own id map fits. */
static int shim_layers_open_caches(struct layers *l, const struct plan *plan, int userns_fd,
                                   struct err *err)
{
    int r;

    if (plan->cache_base) {
        r = shim_layers_open_ours(plan, plan->cache_base, MOUNT_SAFE | MOUNT_RDONLY, userns_fd,
                                  &l->fd[LAYER_BASE], err);
        if (r < 0)
            return r;
    }
    for (size_t i = 0; i < plan->n_caches; i++) {
        if (plan->caches[i].kind != PLAN_CACHE_SHARED)
            continue;
        r = shim_layers_open_ours(plan, plan->caches[i].source, MOUNT_SAFE, userns_fd,
                                  &l->fd[LAYER_CACHES + i], err);
        if (r < 0)
            return r;
    }
    return 0;
}

int layers_open(struct layers *l, const struct plan *plan, int userns_fd, struct err *err)
{
    int r;

    r = shim_layers_open_ours(plan, plan->lower_dir, MOUNT_SAFE | MOUNT_RDONLY, userns_fd,
                              &l->fd[LAYER_LOWER], err);
    if (r < 0)
        return r;
    if (l->fd[LAYER_DATA] >= 0)
        r = mount_set(l->fd[LAYER_DATA], MOUNT_SAFE, userns_fd, err);
    else
        r = shim_layers_open_ours(plan, plan->data_dir, MOUNT_SAFE, userns_fd, &l->fd[LAYER_DATA],
                                  err);
    if (r < 0)
        return r;
    if (plan->image == PLAN_IMAGE_HOST) {
        r = shim_layers_open_host_trees(l, plan, userns_fd, err);
        if (r < 0)
            return r;
    }
    r = setup_dev_nodes(plan, &l->fd[LAYER_DEV], err);
    if (r < 0)
        return r;
    r = shim_layers_open_caches(l, plan, userns_fd, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < plan->n_mounts; i++) {
        r = shim_layers_open_mount(plan, &plan->mounts[i], userns_fd, &l->fd[LAYER_MOUNTS + i],
                                   err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* ---- sending ---- */

/* Packets of up to FD_SEND_MAX descriptors. Each packet holds the numbers of its layers. */
int layers_send(const struct layers *l, int sock, struct err *err)
{
    size_t at = 0;

    do {
        uint16_t which[FD_SEND_MAX + 1];
        int fds[FD_SEND_MAX], r;
        size_t n = 0;

        for (; at < l->n && n < FD_SEND_MAX; at++) {
            if (l->fd[at] < 0)
                continue;
            which[n] = (uint16_t)at;
            fds[n++] = l->fd[at];
        }
        which[n] = at == l->n; /* the last packet */
        r = fd_send(sock, which, (n + 1) * sizeof(which[0]), fds, n, 0);
        if (r < 0)
            return err_sys(err, -r, "send the layers to the sandbox");
    } while (at < l->n);
    return 0;
}

int layers_receive(struct layers *l, int sock, struct err *err)
{
    for (;;) {
        uint16_t which[FD_SEND_MAX + 1];
        int fds[FD_SEND_MAX];
        size_t n = FD_SEND_MAX;
        ssize_t len = fd_recv(sock, which, sizeof(which), fds, &n, 0);

        if (len == 0)
            return err_set(err, ERR_ENGINE, "the shim ended");
        if (len < 0)
            return err_sys(err, (int)-len, "receive the layers");
        if ((size_t)len != (n + 1) * sizeof(which[0]))
            return err_set(err, ERR_SYSTEM, "receive the layers: %zu descriptors, %zd bytes", n,
                           len);
        for (size_t i = 0; i < n; i++)
            l->fd[which[i] < l->n ? which[i] : 0] = fds[i];
        if (which[n])
            return 0;
    }
}

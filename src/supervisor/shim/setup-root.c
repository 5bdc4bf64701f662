/*
 * The root file system. A scaffold (a small tmpfs that exists only in our mount namespace) holds
 * the layers under short names, because overlayfs must find them attached in our own mount
 * namespace. The mount table inside shows only the names `lower` and `data/…`. After the pivot the
 * scaffold disappears with the old root; overlayfs keeps its own reference to the layers.
 */
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/os/mount.h"
#include "lib/os/overlay.h"
#include "supervisor/shim/caches.h"
#include "supervisor/shim/lower-layers.h"
#include "supervisor/shim/mount-point.h"
#include "supervisor/shim/setup-plain.h"
#include "supervisor/shim/setup.h"
#include "supervisor/shim/start-cause.h"

enum { TMPFS_BYTES_PER_INODE = 4096, TMPFS_INODES_MIN = 1024, MOUNTINFO_MAX = 1 << 20 };

int setup_tmpfs(int root_fd, const char *path, uint64_t size, const char *mode, struct err *err)
{
    char size_opt[48], inodes_opt[48], mode_opt[32];
    const char *const options[] = {size_opt, inodes_opt, mode_opt, NULL};
    uint64_t inodes = size / TMPFS_BYTES_PER_INODE + TMPFS_INODES_MIN;
    _cleanup_close_ int fd = -1;
    int r;

    snprintf(size_opt, sizeof(size_opt), "size=%llu", (unsigned long long)size);
    snprintf(inodes_opt, sizeof(inodes_opt), "nr_inodes=%llu", (unsigned long long)inodes);
    snprintf(mode_opt, sizeof(mode_opt), "mode=%s", mode);
    r = mount_new("tmpfs", options, MOUNT_SAFE, &fd, err);
    if (r < 0)
        return err_wrap(err, "prepare '%s'", path);
    return mount_point_mount(root_fd, path, MOUNT_POINT_FOLDER, fd, err);
}

/*
 * Attaches the layers to the scaffold and leaves it as the working folder. The scaffold covers
 * /usr: every machine has that folder, everybody may enter it, and the layers already hold a copy.
 * It must not cover "/", because umount2() of the old root would then detach the scaffold instead.
 */
static int setup_root_fill_scaffold(const struct plan *plan, const struct layers *layers, int fd,
                                    struct err *err)
{
    static const char *const folders[] = {"lower", "data", "base", "root", "none"};
    int r;

    r = mount_attach(fd, AT_FDCWD, "/usr", err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(folders); i++) {
        r = mount_point_mkdir(fd, folders[i], 0755, err);
        if (r < 0)
            return r;
    }
    if (fchdir(fd) < 0)
        return err_sys(err, errno, "enter the scaffold");
    r = mount_attach(layers->fd[LAYER_LOWER], fd, "lower", err);
    if (r < 0)
        return r;
    r = mount_attach(layers->fd[LAYER_DATA], fd, "data", err);
    if (r < 0)
        return r;
    if (layers->fd[LAYER_BASE] >= 0) {
        r = mount_attach(layers->fd[LAYER_BASE], fd, "base", err);
        if (r < 0)
            return r;
    }
    return lower_link(plan, fd, err);
}

static int setup_root_build_scaffold(const struct plan *plan, const struct layers *layers, int *ret,
                                     struct err *err)
{
    static const char *const options[] = {"size=64k", "mode=0700", NULL};
    _cleanup_close_ int fd = -1;

    if (mount_new("tmpfs", options, MOUNT_SAFE, &fd, err) < 0 ||
        setup_root_fill_scaffold(plan, layers, fd, err) < 0)
        return err_wrap(err, "build the scaffold of the root");
    *ret = TAKE_FD(fd);
    return 0;
}

/* The state folder cannot hold an upper layer: the next best way, or the reason and what helps. */
static int setup_root_without_overlay(const struct plan *plan, bool *ret_plain, int *ret,
                                      struct err *err)
{
    if (!setup_plain_is_possible(plan)) {
        start_cause(plan, START_STEP_UPPER, NULL, err);
        return err_wrap(err, "mount the root");
    }
    err_done(err);
    *ret_plain = true;
    return setup_plain_root(ret, err);
}

static int setup_root_mount_overlay(const struct plan *plan, int scaffold, bool *ret_plain,
                                    int *ret, struct err *err)
{
    struct overlay root = {NULL, "data/root/upper", "data/root/work", plan->ephemeral};
    _cleanup_buf_ struct buf lower = BUF_INIT(LOWER_MAX);
    _cleanup_close_ int fd = -1;

    if (lower_root(plan, &lower, err) < 0)
        return err_wrap(err, "mount the root");
    root.lower = buf_data(&lower);
    if (overlay_mount(&root, &fd, err) < 0 &&
        setup_root_without_overlay(plan, ret_plain, &fd, err) < 0)
        return -(int)err->code;
    if (mount_attach(fd, scaffold, "root", err) < 0)
        return err_wrap(err, "mount the root");
    *ret = TAKE_FD(fd);
    return 0;
}

/* Makes /home/agent in images that do not have it, for sandboxes without an overlay for it. */
static int setup_root_ensure_home(const struct plan *plan, int root_fd, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r;

    if (plan->image == PLAN_IMAGE_HOST && !plan->n_layers)
        return 0;
    r = mount_point_open(root_fd, "home/agent", MOUNT_POINT_FOLDER, &fd, err);
    if (r < 0)
        return r;
    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "stat '/home/agent'");
    if (st.st_uid == 0 && fchownat(fd, "", PLAN_AGENT_ID, PLAN_AGENT_ID, AT_EMPTY_PATH) < 0)
        return err_sys(err, errno, "set the owner of '/home/agent'");
    return 0;
}

/* The home has an overlay of its own, because it outlives the root's. An ephemeral sandbox does not
 * need that. */
static int setup_root_mount_home(const struct plan *plan, bool plain, int scaffold, int root_fd,
                                 struct err *err)
{
    struct overlay home = {NULL, "data/home/upper", "data/home/work", false};
    _cleanup_buf_ struct buf lower = BUF_INIT(LOWER_MAX);
    _cleanup_close_ int fd = -1;

    if (plan->bare)
        return 0;
    if (plan->ephemeral)
        return setup_root_ensure_home(plan, root_fd, err);
    if (lower_home(plan, scaffold, &lower, err) < 0)
        return err_wrap(err, "mount '/home/agent'");
    home.lower = buf_data(&lower);
    if ((plain ? setup_plain_home(&fd, err) : overlay_mount(&home, &fd, err)) < 0 ||
        mount_point_mount(root_fd, "home/agent", MOUNT_POINT_FOLDER, fd, err) < 0)
        return err_wrap(err, "mount '/home/agent'");
    return 0;
}

static int setup_root_mount_tmpfs(const struct plan *plan, int root_fd, struct err *err)
{
    const struct {
        const char *path, *mode;
        uint64_t size; /* 0: not mounted */
    } list[] = {{"tmp", "1777", plan->tmp_size},
                {"run", "0755", plan->run_size},
                {"scratch", "1777", plan->scratch_size}};

    for (size_t i = 0; i < ARRAY_SIZE(list); i++) {
        int r;

        if (!list[i].size)
            continue;
        r = setup_tmpfs(root_fd, list[i].path, GUARD("tmpfs") ? list[i].size : GIB(64),
                        list[i].mode, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/* The mounts that the user asked for. */
static int setup_root_mount_requested(const struct plan *plan, const struct layers *layers,
                                      int root_fd, struct err *err)
{
    for (size_t i = 0; i < plan->n_mounts; i++) {
        int fd = layers->fd[LAYER_MOUNTS + i], r;
        struct stat st;

        if (fstat(fd, &st) < 0)
            return err_sys(err, errno, "stat mount source '%s'", plan->mounts[i].source);
        r = mount_point_mount(root_fd, plan->mounts[i].target,
                              S_ISDIR(st.st_mode) ? MOUNT_POINT_FOLDER : MOUNT_POINT_FILE, fd, err);
        if (r < 0)
            return r;
    }
    return 0;
}

/*
 * Proves that the host's root is out of reach: if another root were still stacked on ours, setns()
 * would enter that one. mountinfo lists every reachable mount, and exactly one may be at "/".
 */
static int setup_root_check_alone(struct err *err)
{
    _cleanup_free_ char *text = NULL;
    int r, roots = 0;

    r = file_read(AT_FDCWD, "/proc/self/mountinfo", MOUNTINFO_MAX, &text, NULL, err);
    if (r < 0)
        return r;
    for (char *p = text, *line; (line = strsep(&p, "\n"));) {
        char *field = NULL;

        for (int i = 0; i < 5; i++) /* id, parent, device, root, mount point */
            field = strsep(&line, " ");
        roots += field && STREQ(field, "/");
    }
    if (roots != 1)
        return err_set(err, ERR_SYSTEM, "the sandbox has %d mounts at '/' (expected 1)", roots);
    return 0;
}

int setup_root(const struct plan *plan, struct layers *layers, uint64_t memory_shown,
               int *ret_meminfo, struct err *err)
{
    _cleanup_close_ int scaffold = -1, root_fd = -1, files = -1;
    bool plain = false;
    int r;

    r = mount_make_private(err);
    if (r < 0)
        return r;
    r = setup_root_build_scaffold(plan, layers, &scaffold, err);
    if (r < 0)
        return r;
    r = setup_root_mount_overlay(plan, scaffold, &plain, &root_fd, err);
    if (r < 0)
        return r;
    r = setup_root_mount_home(plan, plain, scaffold, root_fd, err);
    if (r < 0)
        return r;
    r = setup_host_trees(plan, layers, scaffold, root_fd, err);
    if (r < 0)
        return r;
    r = setup_root_mount_tmpfs(plan, root_fd, err);
    if (r < 0)
        return r;
    r = setup_dev(plan, layers->fd[LAYER_DEV], root_fd, err);
    if (r < 0)
        return r;
    r = setup_proc(plan, layers->fd[LAYER_PROC], root_fd, &files, err);
    if (r < 0)
        return r;
    r = setup_proc_view(plan, memory_shown, files, root_fd, ret_meminfo, err);
    if (r < 0)
        return r;
    r = setup_sys(plan, files, root_fd, err);
    if (r < 0)
        return r;
    r = caches_mount(plan, layers, plain, scaffold, root_fd, err);
    if (r < 0)
        return r;
    r = setup_root_mount_requested(plan, layers, root_fd, err);
    if (r < 0)
        return r;
    r = mount_pivot(root_fd, err);
    if (r < 0)
        return r;
    return setup_root_check_alone(err);
}

/*
 * /dev: a tmpfs of our own that covers the image's /dev, with six devices. The shim makes them as
 * root, so that each sandbox has nodes of its own: with the host's, inotify would report every use
 * of /dev/null on the machine, and a lock would reach all sandboxes. Where the shim may not make
 * nodes, the host's are bound: we open each once, compare its numbers with the expected ones, and
 * bind that descriptor.
 */
#include <fcntl.h>
#include <linux/magic.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/macro.h"
#include "lib/os/mount.h"
#include "supervisor/shim/mount-point.h"
#include "supervisor/shim/setup.h"

enum { SHM_SIZE_DEFAULT = 64 << 20 };

/* clang-format off */
static const struct {
    const char *name;
    unsigned major, minor; /* Documentation/admin-guide/devices.txt */
} devices[] = {
    {"null", 1, 3}, {"zero", 1, 5}, {"full", 1, 7}, {"random", 1, 8}, {"urandom", 1, 9}, {"tty", 5, 0},
};

static const struct {
    const char *name, *to;
} links[] = {
    {"fd", "/proc/self/fd"}, {"stdin", "fd/0"}, {"stdout", "fd/1"}, {"stderr", "fd/2"}, {"ptmx", "pts/ptmx"},
};
/* clang-format on */

static const char *const tmpfs_size = "size=64k", *const tmpfs_inodes = "nr_inodes=64",
                         *const tmpfs_mode = "mode=0755";

static int setup_dev_make_node(int dev_fd, size_t i, uint32_t owner)
{
    const char *name = devices[i].name;
    dev_t number = makedev(devices[i].major, devices[i].minor);

    if (mknodat(dev_fd, name, S_IFCHR | 0666, number) < 0 || fchmodat(dev_fd, name, 0666, 0) < 0 ||
        fchownat(dev_fd, name, owner, owner, AT_SYMLINK_NOFOLLOW) < 0)
        return -errno;
    return 0;
}

int setup_dev_nodes(const struct plan *plan, int *ret, struct err *err)
{
    char uid[32], gid[32];
    const char *const options[] = {tmpfs_size, tmpfs_inodes, tmpfs_mode, uid, gid, NULL};
    _cleanup_close_ int dev = -1;
    int r;

    if (!plan->id_base || !GUARD("own devices"))
        return 0;
    snprintf(uid, sizeof(uid), "uid=%u", plan->id_base);
    snprintf(gid, sizeof(gid), "gid=%u", plan->id_base);
    r = mount_new("tmpfs", options, MOUNT_NOSUID | MOUNT_NOEXEC, &dev, err);
    if (r < 0)
        return err_wrap(err, "set up '/dev'");
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        r = setup_dev_make_node(dev, i, plan->id_base);
        if (r == -EPERM)
            return 0;
        if (r < 0)
            return err_sys(err, -r, "make device '/dev/%s'", devices[i].name);
    }
    *ret = TAKE_FD(dev);
    return 0;
}

static int setup_dev_bind_device(int dev_fd, size_t i, struct err *err)
{
    _cleanup_close_ int host = -1, fd = -1;
    char path[32];
    struct stat st;

    snprintf(path, sizeof(path), "/dev/%s", devices[i].name);
    host = open(path, O_PATH | O_NOFOLLOW | O_CLOEXEC);
    if (host < 0 || fstat(host, &st) < 0)
        return err_sys(err, errno, "open the host's '%s'", path);
    if (!S_ISCHR(st.st_mode) || st.st_rdev != makedev(devices[i].major, devices[i].minor))
        return err_set(err, ERR_SYSTEM, "the host's '%s' is not the expected device", path);
    if (mount_clone(host, "", 0, &fd, err) < 0 ||
        mount_set(fd, MOUNT_NOSUID | MOUNT_NOEXEC, -1, err) < 0 ||
        mount_point_mount(dev_fd, devices[i].name, MOUNT_POINT_FILE, fd, err) < 0)
        return err_wrap(err, "bind '%s'", path);
    return 0;
}

/* A devpts instance with its own limit: one sandbox cannot use up the machine's ptys. */
static int setup_dev_mount_devpts(const struct plan *plan, int dev_fd, struct err *err)
{
    /* gid 5 is `tty` on Debian and most others; without a range of ids it is not mapped. */
    const char *const options[] = {"newinstance",
                                   "ptmxmode=0666",
                                   "mode=0620",
                                   GUARD("ptys") ? "max=256" : "max=4096",
                                   plan->id_base ? "gid=5" : NULL,
                                   NULL};
    _cleanup_close_ int fd = -1;
    int r;

    r = mount_new("devpts", options, MOUNT_NOSUID | MOUNT_NOEXEC, &fd, err);
    if (r < 0)
        return r;
    return mount_point_mount(dev_fd, "pts", MOUNT_POINT_FOLDER, fd, err);
}

static int setup_dev_bind_devices(int root_fd, int *ret, struct err *err)
{
    const char *const options[] = {tmpfs_size, tmpfs_inodes, tmpfs_mode, NULL};
    _cleanup_close_ int dev = -1;
    int r;

    r = mount_new("tmpfs", options, MOUNT_NOSUID | MOUNT_NOEXEC, &dev, err);
    if (r < 0)
        return r;
    r = mount_point_mount(root_fd, "dev", MOUNT_POINT_FOLDER, dev, err);
    if (r < 0)
        return r;
    for (size_t i = 0; i < ARRAY_SIZE(devices); i++) {
        r = setup_dev_bind_device(dev, i, err);
        if (r < 0)
            return r;
    }
    *ret = TAKE_FD(dev);
    return 0;
}

/* Everything but the devices. */
static int setup_dev_fill(const struct plan *plan, int dev, struct err *err)
{
    int r;

    for (size_t i = 0; i < ARRAY_SIZE(links); i++) {
        r = mount_point_symlink(dev, links[i].name, links[i].to, err);
        if (r < 0)
            return r;
    }
    r = setup_dev_mount_devpts(plan, dev, err);
    if (r < 0)
        return r;
    return setup_tmpfs(dev, "shm", plan->shm_size ? plan->shm_size : SHM_SIZE_DEFAULT, "1777", err);
}

int setup_dev(const struct plan *plan, int nodes, int root_fd, struct err *err)
{
    _cleanup_close_ int bound = -1;
    int r;

    if (nodes >= 0)
        r = mount_point_mount(root_fd, "dev", MOUNT_POINT_FOLDER, nodes, err);
    else
        r = setup_dev_bind_devices(root_fd, &bound, err);
    if (r >= 0)
        r = setup_dev_fill(plan, nodes >= 0 ? nodes : bound, err);
    return r < 0 ? err_wrap(err, "set up '/dev'") : 0;
}

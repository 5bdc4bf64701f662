/*
 * Uses syscall(): glibc has the wrappers only since 2.36, and its <sys/mount.h> clashes with
 * <linux/mount.h>.
 */
#include "lib/os/mount.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <linux/mount.h>
#include <stdint.h>
#include <string.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/cleanup.h"

#define UMOUNT_DETACH 2 /* MNT_DETACH of <sys/mount.h> */

static unsigned os_mount_recursion(unsigned flags)
{
    return flags & MOUNT_RECURSIVE ? AT_RECURSIVE : 0;
}

static uint64_t os_mount_attributes(unsigned flags)
{
    return (flags & MOUNT_RDONLY ? MOUNT_ATTR_RDONLY : 0) |
           (flags & MOUNT_NOSUID ? MOUNT_ATTR_NOSUID : 0) |
           (flags & MOUNT_NODEV ? MOUNT_ATTR_NODEV : 0) |
           (flags & MOUNT_NOEXEC ? MOUNT_ATTR_NOEXEC : 0);
}

int mount_clone(int dirfd, const char *path, unsigned flags, int *ret, struct err *err)
{
    unsigned how = OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_SYMLINK_NOFOLLOW;
    int fd = (int)syscall(SYS_open_tree, dirfd, path, how | os_mount_recursion(flags));

    if (fd < 0)
        return err_sys(err, errno, "clone the mount of '%s'", path);
    *ret = fd;
    return 0;
}

/* The kernel's EINVAL means that the file system does not support id maps. For most file systems,
 * the caller knows what to do. */
static int os_mount_no_id_map(int mount_fd, struct err *err)
{
    struct statfs fs;

    err_sys(err, EINVAL, "set mount attributes and id map");
    if (fstatfs(mount_fd, &fs) == 0 && fs.f_type == TMPFS_MAGIC)
        return err_hint(err, "Use a folder on ext4, xfs or btrfs: tmpfs supports id-mapped mounts "
                             "only since Linux 6.3.");
    return -ERR_SYSTEM;
}

int mount_set(int mount_fd, unsigned flags, int userns_fd, struct err *err)
{
    struct mount_attr attr = {.attr_set = os_mount_attributes(flags)};

    if (userns_fd >= 0) {
        attr.attr_set |= MOUNT_ATTR_IDMAP;
        attr.userns_fd = (uint64_t)userns_fd;
    }
    if (syscall(SYS_mount_setattr, mount_fd, "", AT_EMPTY_PATH | os_mount_recursion(flags), &attr,
                sizeof(attr)) < 0) {
        if (errno == EINVAL && userns_fd >= 0)
            return os_mount_no_id_map(mount_fd, err);
        return err_sys(err, errno, "set mount attributes%s", userns_fd >= 0 ? " and id map" : "");
    }
    return 0;
}

/* Adds the messages of the file system, which it writes to the context as "e overlay: …". */
static int os_mount_fs_error(int fs, int errnum, const char *fstype, const char *what,
                             struct err *err)
{
    char text[512];
    ssize_t n = read(fs, text, sizeof(text) - 1);

    if (n <= 2)
        return err_sys(err, errnum, "mount %s: %s", fstype, what);
    text[n] = '\0';
    text[strcspn(text, "\n")] = '\0';
    return err_sys(err, errnum, "mount %s: %s: %s", fstype, what, text + 2);
}

static int os_mount_set_option(int fs, const char *fstype, const char *option, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(8192);
    char *eq;
    long r;

    if (buf_append_str(&b, option) < 0)
        return err_set(err, ERR_LIMIT, "mount %s: option is too long", fstype);
    eq = strchr(buf_data(&b), '=');
    if (eq) {
        *eq = '\0';
        r = syscall(SYS_fsconfig, fs, FSCONFIG_SET_STRING, buf_data(&b), eq + 1, 0);
    } else {
        r = syscall(SYS_fsconfig, fs, FSCONFIG_SET_FLAG, option, NULL, 0);
    }
    return r < 0 ? os_mount_fs_error(fs, errno, fstype, option, err) : 0;
}

int mount_new(const char *fstype, const char *const *options, unsigned flags, int *ret,
              struct err *err)
{
    _cleanup_close_ int fs = -1;
    int fd;

    fs = (int)syscall(SYS_fsopen, fstype, FSOPEN_CLOEXEC);
    if (fs < 0)
        return err_sys(err, errno, "open file system '%s'", fstype);
    for (; options && *options; options++) {
        int r = os_mount_set_option(fs, fstype, *options, err);

        if (r < 0)
            return r;
    }
    if (syscall(SYS_fsconfig, fs, FSCONFIG_CMD_CREATE, NULL, NULL, 0) < 0)
        return os_mount_fs_error(fs, errno, fstype, "create", err);
    fd = (int)syscall(SYS_fsmount, fs, FSMOUNT_CLOEXEC, os_mount_attributes(flags));
    if (fd < 0)
        return os_mount_fs_error(fs, errno, fstype, "mount", err);
    *ret = fd;
    return 0;
}

int mount_attach(int mount_fd, int dirfd, const char *path, struct err *err)
{
    unsigned how = MOVE_MOUNT_F_EMPTY_PATH | (*path ? 0 : MOVE_MOUNT_T_EMPTY_PATH);

    if (syscall(SYS_move_mount, mount_fd, "", dirfd, path, how) < 0)
        return err_sys(err, errno, "attach a mount at '%s'", path);
    return 0;
}

int mount_make_private(struct err *err)
{
    struct mount_attr attr = {.propagation = MS_PRIVATE};

    if (syscall(SYS_mount_setattr, AT_FDCWD, "/", AT_RECURSIVE, &attr, sizeof(attr)) < 0)
        return err_sys(err, errno, "make all mounts private");
    return 0;
}

int mount_pivot(int root_fd, struct err *err)
{
    _cleanup_close_ int old = open("/", O_PATH | O_DIRECTORY | O_CLOEXEC);

    if (old < 0)
        return err_sys(err, errno, "open '/'");
    /* pivot_root(".", ".") stacks the old root on the new one, so no folder is needed for it. */
    if (fchdir(root_fd) < 0 || syscall(SYS_pivot_root, ".", ".") < 0)
        return err_sys(err, errno, "pivot into the new root");
    if (fchdir(old) < 0 || syscall(SYS_umount2, ".", UMOUNT_DETACH) < 0)
        return err_sys(err, errno, "detach the old root");
    if (chdir("/") < 0)
        return err_sys(err, errno, "change to the new root");
    return 0;
}

#include "supervisor/shim/mount-point.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/xalloc.h"
#include "lib/os/mount.h"

static int mount_point_open_beneath(int root_fd, const char *path, uint64_t flags)
{
    struct open_how how = {.flags = O_PATH | O_CLOEXEC | flags};
    int fd;

    if (GUARD("targets")) {
        how.flags |= O_NOFOLLOW;
        how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
    }
    fd = (int)syscall(SYS_openat2, root_fd, path, &how, sizeof(how));
    return fd < 0 ? -errno : fd;
}

static int mount_point_make_last(int dirfd, const char *name, enum mount_point_kind kind)
{
    int fd;

    if (kind == MOUNT_POINT_FOLDER)
        return mkdirat(dirfd, name, 0755) < 0 && errno != EEXIST ? -errno : 0;
    fd = openat(dirfd, name, O_WRONLY | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0644);
    if (fd < 0)
        return -errno;
    fd_close(fd);
    return 0;
}

/* Makes every missing component, each below a pinned parent. */
static int mount_point_make_path(int root_fd, const char *path, enum mount_point_kind kind)
{
    _cleanup_close_ int dir = mount_point_open_beneath(root_fd, ".", O_DIRECTORY);

    while (dir >= 0) {
        char name[NAME_MAX + 1];
        size_t n = strcspn(path, "/");
        bool last = path[n] == '\0';
        int r;

        if (n == 0 || n > NAME_MAX)
            return -EINVAL;
        memcpy(name, path, n);
        name[n] = '\0';
        r = mount_point_make_last(dir, name, last ? kind : MOUNT_POINT_FOLDER);
        if (r < 0 || last)
            return r;
        r = mount_point_open_beneath(dir, name, O_DIRECTORY);
        fd_close(dir);
        dir = r;
        path += n + 1;
    }
    return dir;
}

int mount_point_open(int root_fd, const char *path, enum mount_point_kind kind, int *ret,
                     struct err *err)
{
    uint64_t flags = kind == MOUNT_POINT_FOLDER ? O_DIRECTORY : 0;
    int fd, r;

    path += *path == '/';
    fd = mount_point_open_beneath(root_fd, path, flags);
    if (fd == -ENOENT) {
        r = mount_point_make_path(root_fd, path, kind);
        fd = r < 0 ? r : mount_point_open_beneath(root_fd, path, flags);
    }
    if (fd >= 0) {
        *ret = fd;
        return 0;
    }
    err_sys(err, -fd, "open '/%s' in the sandbox to mount there", path);
    if (fd == -ELOOP || fd == -ENOTDIR)
        err_hint(err,
                 "Use a path without symbolic links to '/%s'. If a command in the sandbox replaced "
                 "it, remove the sandbox and create it again.",
                 path);
    return -ERR_SYSTEM;
}

int mount_point_mount(int root_fd, const char *path, enum mount_point_kind kind, int mount_fd,
                      struct err *err)
{
    _cleanup_close_ int at = -1;
    int r;

    r = mount_point_open(root_fd, path, kind, &at, err);
    if (r < 0)
        return r;
    r = mount_attach(mount_fd, at, "", err);
    return r < 0 ? err_wrap(err, "mount '%s' in the sandbox", path) : 0;
}

int mount_point_mkdir(int dirfd, const char *path, mode_t mode, struct err *err)
{
    if (mkdirat(dirfd, path, mode) < 0 && errno != EEXIST)
        return err_sys(err, errno, "create folder '%s' in the sandbox", path);
    return 0;
}

int mount_point_symlink(int dirfd, const char *path, const char *to, struct err *err)
{
    if (symlinkat(to, dirfd, path) < 0)
        return err_sys(err, errno, "create link '%s' in the sandbox", path);
    return 0;
}

int mount_point_write(int dirfd, const char *path, const char *text, struct err *err)
{
    _cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
    int r;

    if (fd < 0)
        return err_sys(err, errno, "create file '%s' in the sandbox", path);
    r = fd_write_all(fd, text, strlen(text));
    return r < 0 ? err_sys(err, -r, "write file '%s' in the sandbox", path) : 0;
}

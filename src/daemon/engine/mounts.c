/*
 * Checks names first, for clear messages, then identity: the device and inode of the source and of
 * each parent are compared with the refused trees, so that a bind mount of such a tree under
 * another name is refused too.
 */
#include "daemon/engine/mounts.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <stdbool.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

enum { PARENTS_MAX = 256 };

static const char *const refused_trees[] = {
    "/boot",
    "/dev",
    "/etc",
    "/proc",
    "/run",
    "/sys",
    "/var/lib/containerd",
    "/var/lib/containers",
    "/var/lib/docker",
    "/var/lib/kubelet",
    "/var/run",
    NULL,
};

/* Whether `inner` is `outer` or below it; both are clean and absolute. */
static bool engine_mounts_path_within(const char *inner, const char *outer)
{
    size_t n = strlen(outer);

    if (STREQ(outer, "/"))
        return true;
    return strncmp(inner, outer, n) == 0 && (inner[n] == '/' || inner[n] == '\0');
}

static bool engine_mounts_is_clean(const char *path)
{
    size_t n = strlen(path);

    return path[0] == '/' && !strstr(path, "//") && !strstr(path, "/./") && !strstr(path, "/../") &&
           (n < 2 || path[n - 1] != '/') && !(n >= 2 && STREQ(path + n - 2, "/.")) &&
           !(n >= 3 && STREQ(path + n - 3, "/.."));
}

static int engine_mounts_refuse(const char *path, const char *tree, struct err *err)
{
    err_set(err, ERR_DENIED, "mount source '%s' would share '%s' with the sandbox", path, tree);
    return err_hint(err, "Mount a folder that holds only what the sandbox needs.");
}

static int engine_mounts_check_names(const char *path, const char *const *trees, struct err *err)
{
    for (; *trees && GUARD("source names"); trees++)
        if (engine_mounts_path_within(path, *trees) || engine_mounts_path_within(*trees, path))
            return engine_mounts_refuse(path, *trees, err);
    return 0;
}

static int engine_mounts_check_identity(const char *path, const struct stat *st,
                                        const char *const *trees, struct err *err)
{
    for (; *trees && GUARD("source identity"); trees++) {
        struct stat t;

        if (stat(*trees, &t) == 0 && t.st_dev == st->st_dev && t.st_ino == st->st_ino)
            return engine_mounts_refuse(path, *trees, err);
    }
    return 0;
}

/* Checks the source and all its parents. The root itself is not compared, as it is a parent of
 * all. */
static int engine_mounts_check_parents(const char *path, int fd, const char *const *own,
                                       struct err *err)
{
    _cleanup_close_ int at = openat(fd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);
    struct stat st, above;

    if (at < 0 || fstat(at, &st) < 0)
        return err_sys(err, errno, "stat mount source '%s'", path);
    for (int i = 0; i < PARENTS_MAX; i++) {
        int up, r;

        r = engine_mounts_check_identity(path, &st, refused_trees, err);
        if (r < 0)
            return r;
        r = engine_mounts_check_identity(path, &st, own, err);
        if (r < 0)
            return r;
        up = openat(at, "..", O_PATH | O_DIRECTORY | O_CLOEXEC);
        if (up < 0 || fstat(up, &above) < 0) {
            fd_close(up);
            return err_sys(err, errno, "look above mount source '%s'", path);
        }
        fd_close(at);
        at = up;
        if (above.st_dev == st.st_dev && above.st_ino == st.st_ino)
            return 0;
        st = above;
    }
    return err_set(err, ERR_INVALID, "mount source '%s' has too many parent folders", path);
}

static int engine_mounts_open_source(const char *path, int *ret, struct err *err)
{
    struct open_how how = {
        .flags = O_PATH | O_CLOEXEC,
        .resolve = GUARD("source links") ? RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS : 0,
    };
    int fd = (int)syscall(SYS_openat2, AT_FDCWD, path, &how, sizeof(how));

    if (fd >= 0) {
        *ret = fd;
        return 0;
    }
    if (errno == ELOOP) {
        err_set(err, ERR_INVALID, "mount source '%s' goes through a symlink", path);
        return err_hint(err, "Give the real path ('realpath %s').", path);
    }
    if (errno == ENOENT || errno == ENOTDIR)
        return err_set(err, ERR_NOT_FOUND, "mount source '%s' does not exist", path);
    return err_sys(err, errno, "open mount source '%s'", path);
}

static int engine_mounts_check_opened(const char *path, int fd, const char *const *own,
                                      struct mount_source *ret, struct err *err)
{
    _cleanup_close_ int folder = -1;
    struct stat st;
    int r;

    if (fstat(fd, &st) < 0)
        return err_sys(err, errno, "stat mount source '%s'", path);
    if (!S_ISDIR(st.st_mode) && !S_ISREG(st.st_mode) && GUARD("source kinds"))
        return err_set(err, ERR_DENIED, "mount source '%s' is neither a folder nor a plain file",
                       path);
    if (!S_ISDIR(st.st_mode)) {
        _cleanup_free_ char *dir = xstrndup(path, MAX(1, (size_t)(strrchr(path, '/') - path)));

        r = engine_mounts_open_source(dir, &folder, err);
        if (r < 0)
            return r;
        fd = folder;
    }
    r = engine_mounts_check_parents(path, fd, own, err);
    if (r < 0)
        return r;
    *ret = (struct mount_source){
        .dev = st.st_dev, .ino = st.st_ino, .uid = st.st_uid, .gid = st.st_gid, .mode = st.st_mode};
    return 0;
}

bool mount_source_is_root_only(const struct mount_source *src)
{
    bool by_group = src->gid != 0 && src->mode & S_IWGRP;

    return src->uid == 0 && !by_group && !(src->mode & S_IWOTH);
}

int mount_source_check(const char *path, const char *const *own, struct mount_source *ret,
                       struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    if (!engine_mounts_is_clean(path))
        return err_set(err, ERR_INVALID, "mount source '%s' is not a plain absolute path", path);
    r = engine_mounts_check_names(path, refused_trees, err);
    if (r < 0)
        return r;
    r = engine_mounts_check_names(path, own, err);
    if (r < 0)
        return r;
    r = engine_mounts_open_source(path, &fd, err);
    if (r < 0)
        return r;
    return engine_mounts_check_opened(path, fd, own, ret, err);
}

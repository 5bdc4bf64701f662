#include "image/build/layer-cleanup.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"
#include "lib/os/whiteout.h"

enum { DEPTH_MAX = 200, LIST_MAX = 64 << 10 };

static const char overlay_prefix[] = "user.overlay.";
static const char opaque[] = "user.overlay.opaque";

static int layer_cleanup_folder(int fd, unsigned depth, uint64_t *bytes, struct err *err);

/* This changes only the ctime, so the layer stays the same. */
static int layer_cleanup_drop_xattrs(int fd, struct err *err)
{
    _cleanup_free_ char *names = NULL;
    ssize_t n = flistxattr(fd, NULL, 0);

    if (n <= 0)
        return 0;
    names = xmalloc(LIST_MAX);
    n = flistxattr(fd, names, LIST_MAX);
    for (const char *name = names; n > 0 && name < names + n; name += strlen(name) + 1)
        if (strncmp(name, overlay_prefix, strlen(overlay_prefix)) == 0 && !STREQ(name, opaque) &&
            fremovexattr(fd, name) < 0)
            return err_sys(err, errno, "remove attribute '%.100s'", name);
    return 0;
}

static int layer_cleanup_entry(int dir, const char *name, unsigned depth, uint64_t *bytes,
                               struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct stat st;
    int r;

    if (fstatat(dir, name, &st, AT_SYMLINK_NOFOLLOW) < 0)
        return err_sys(err, errno, "stat '%.200s'", name);
    if (S_ISLNK(st.st_mode) || whiteout_is(&st))
        return 0;
    if (!S_ISREG(st.st_mode) && !S_ISDIR(st.st_mode))
        return unlinkat(dir, name, 0) < 0 ? err_sys(err, errno, "remove '%.200s'", name) : 0;
    fd = openat(dir, name, O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%.200s'", name);
    r = layer_cleanup_drop_xattrs(fd, err);
    if (r < 0 || S_ISREG(st.st_mode)) {
        *bytes += S_ISREG(st.st_mode) ? (uint64_t)st.st_size : 0;
        return r;
    }
    if (depth == DEPTH_MAX)
        return err_set(err, ERR_LIMIT, "'%.200s': over %d levels deep", name, DEPTH_MAX);
    return layer_cleanup_folder(fd, depth + 1, bytes, err);
}

static int layer_cleanup_folder(int fd, unsigned depth, uint64_t *bytes, struct err *err)
{
    int copy = fcntl(fd, F_DUPFD_CLOEXEC, 3), r;
    _cleanup_closedir_ DIR *d = copy < 0 ? NULL : fdopendir(copy);

    if (!d) {
        fd_close(copy);
        return err_sys(err, errno, "read a folder");
    }
    for (const struct dirent *e; (e = readdir(d));) {
        if (STREQ(e->d_name, ".") || STREQ(e->d_name, ".."))
            continue;
        r = layer_cleanup_entry(fd, e->d_name, depth, bytes, err);
        if (r < 0)
            return r;
    }
    return 0;
}

int layer_cleanup(int dir, uint64_t *ret, struct err *err)
{
    uint64_t bytes = 0;
    int r;

    r = layer_cleanup_drop_xattrs(dir, err);
    if (r < 0)
        return r;
    r = layer_cleanup_folder(dir, 0, &bytes, err);
    if (r < 0)
        return r;
    *ret = bytes;
    return 0;
}

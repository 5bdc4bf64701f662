#include "lib/os/overlay.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/stat.h>

#include "lib/base/buf.h"
#include "lib/os/mount.h"

int overlay_mount(const struct overlay *o, int *ret, struct err *err)
{
    _cleanup_buf_ struct buf lower = BUF_INIT(4096), upper = BUF_INIT(4096), work = BUF_INIT(4096);
    const char *options[6];
    int n = 0;

    if (buf_appendf(&lower, "lowerdir=%s", o->lower) < 0 ||
        (o->upper && (buf_appendf(&upper, "upperdir=%s", o->upper) < 0 ||
                      buf_appendf(&work, "workdir=%s", o->work) < 0)))
        return err_set(err, ERR_LIMIT, "overlay layer name is too long");
    options[n++] = buf_data(&lower);
    if (o->upper) {
        options[n++] = buf_data(&upper);
        options[n++] = buf_data(&work);
        /* A user namespace cannot set trusted.* attributes. Without an upper layer overlayfs sets
         * none, and must not look for user.* either: it could not open folders of others. */
        options[n++] = "userxattr";
    }
    if (o->unsynced)
        options[n++] = "volatile";
    options[n] = NULL;
    return mount_new("overlay", options, MOUNT_SAFE | (o->upper ? 0 : MOUNT_RDONLY), ret, err);
}

int overlay_renew_begin(int dirfd, const char *keep, struct err *err)
{
    static const struct {
        const char *path;
        mode_t mode;
    } folders[] = {{"root.next", 0700}, {"root.next/upper", 0755}, {"root.next/work", 0700}};
    char from[NAME_MAX + 32], to[NAME_MAX + 32];

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        if ((mkdirat(dirfd, folders[i].path, 0700) < 0 && errno != EEXIST) ||
            fchmodat(dirfd, folders[i].path, folders[i].mode, 0) < 0)
            return err_sys(err, errno, "make folder '%s' of the sandbox", folders[i].path);
    snprintf(from, sizeof(from), "root/upper/%s", keep);
    snprintf(to, sizeof(to), "root.next/upper/%s", keep);
    if (renameat(dirfd, from, dirfd, to) < 0 && errno != ENOENT && errno != EACCES &&
        errno != EPERM)
        return err_sys(err, errno, "keep '%s' of the sandbox", from);
    return 0;
}

int overlay_renew_end(int dirfd, struct err *err)
{
    return renameat(dirfd, "root.next", dirfd, "root") < 0
               ? err_sys(err, errno, "rename 'root.next' of the sandbox")
               : 0;
}

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

/* Moves a folder from one upper layer to another. One that is not there, that cannot be moved
 * because of its owner, or whose target exists, stays where it is. */
static int overlay_move(int dirfd, const char *from_root, const char *to_root, const char *name,
                        struct err *err)
{
    char from[NAME_MAX + 32], to[NAME_MAX + 32];

    snprintf(from, sizeof(from), "%s/upper/%s", from_root, name);
    snprintf(to, sizeof(to), "%s/upper/%s", to_root, name);
    if (renameat2(dirfd, from, dirfd, to, RENAME_NOREPLACE) == 0 || errno == ENOENT ||
        errno == EACCES || errno == EPERM || errno == EEXIST)
        return 0;
    return err_sys(err, errno, "keep '%s' of the sandbox", from);
}

static int overlay_rename(int dirfd, const char *from, const char *to, struct err *err)
{
    return renameat(dirfd, from, dirfd, to) < 0
               ? err_sys(err, errno, "rename '%s' of the sandbox to '%s'", from, to)
               : 0;
}

int overlay_renew_begin(int dirfd, const char *keep, struct err *err)
{
    static const struct {
        const char *path;
        mode_t mode;
    } folders[] = {{OVERLAY_ROOT_NEXT, 0700},
                   {OVERLAY_ROOT_NEXT "/upper", 0755},
                   {OVERLAY_ROOT_NEXT "/work", 0700}};

    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++)
        if ((mkdirat(dirfd, folders[i].path, 0700) < 0 && errno != EEXIST) ||
            fchmodat(dirfd, folders[i].path, folders[i].mode, 0) < 0)
            return err_sys(err, errno, "make folder '%s' of the sandbox", folders[i].path);
    return overlay_move(dirfd, "root", OVERLAY_ROOT_NEXT, keep, err);
}

int overlay_renew_end(int dirfd, struct err *err)
{
    return overlay_rename(dirfd, OVERLAY_ROOT_NEXT, "root", err);
}

int overlay_keep(int dirfd, struct err *err)
{
    struct stat st;

    if (fstatat(dirfd, "root", &st, AT_SYMLINK_NOFOLLOW) < 0 && errno == ENOENT)
        return 0; /* it was moved before a crash, or never existed */
    return overlay_rename(dirfd, "root", OVERLAY_ROOT_OLD, err);
}

int overlay_keep_undo_begin(int dirfd, const char *keep, struct err *err)
{
    struct stat st;
    bool moved = fstatat(dirfd, OVERLAY_ROOT_OLD, &st, AT_SYMLINK_NOFOLLOW) == 0;
    const char *old = moved ? OVERLAY_ROOT_OLD : "root";
    int r = moved ? overlay_move(dirfd, "root", old, keep, err) : 0;

    if (r < 0)
        return r;
    r = overlay_move(dirfd, OVERLAY_ROOT_NEXT, old, keep, err);
    return r < 0 ? r : moved;
}

int overlay_keep_undo_end(int dirfd, struct err *err)
{
    return overlay_rename(dirfd, OVERLAY_ROOT_OLD, "root", err);
}

/*
 * ext4 puts a new folder near its parent. Without a journal it also steps over every inode that was
 * deleted in the last minutes, one by one: where sandboxes come and go in one place, making a
 * folder then takes 0.7 ms instead of 0.03 (measured). With this flag each child gets a place of
 * its own. On other file systems it means nothing.
 */
#include "lib/os/ext4-spread.h"

#include <linux/fs.h>
#include <linux/magic.h>
#include <sys/ioctl.h>
#include <sys/vfs.h>

void ext4_spread_children(int dirfd)
{
    struct statfs fs;
    int flags;

    if (fstatfs(dirfd, &fs) < 0 || fs.f_type != EXT4_SUPER_MAGIC ||
        ioctl(dirfd, FS_IOC_GETFLAGS, &flags) < 0 || (flags & FS_TOPDIR_FL))
        return;
    flags |= FS_TOPDIR_FL;
    ioctl(dirfd, FS_IOC_SETFLAGS, &flags); /* only a hint: nothing is lost where it is refused */
}

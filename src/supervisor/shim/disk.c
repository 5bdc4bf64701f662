/*
 * Two mounts of one image would destroy it, and the previous run's mount can outlive its processes
 * for a moment. So we lock the image with flock() before we attach it. The loop device holds the
 * same open file description, so the lock ends exactly when the kernel releases the file.
 */
#include "supervisor/shim/disk.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <time.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/time.h"
#include "lib/os/loopdev.h"
#include "lib/os/mount.h"
#include "lib/os/overlay.h"
#include "lib/os/rmtree.h"

#define LOCK_TIMEOUT (10 * USEC_PER_SEC)
#define HASH_NAME "spec" /* a symlink: one system call writes it whole */
#define HASH_OLD "spec.old"

static int shim_disk_lock_image(int fd, const char *image, struct err *err)
{
    const struct timespec nap = {.tv_nsec = 2000000};
    struct deadline by = deadline_in(LOCK_TIMEOUT);

    while (flock(fd, LOCK_EX | LOCK_NB) < 0) {
        if (errno != EWOULDBLOCK && errno != EINTR)
            return err_sys(err, errno, "lock '%s'", image);
        if (deadline_passed(&by))
            return err_set(err, ERR_CONFLICT, "'%s' is still in use by a previous run", image);
        nanosleep(&nap, NULL);
    }
    return 0;
}

/*
 * noinit_itable: the image is sparse and already reads as zeros; writing zeros would only fill the
 * host's disk. discard: space that is freed inside returns to the host. nobarrier: else mount and
 * unmount wait for the host's disk.
 */
static int shim_disk_mount_device(const char *device, bool ephemeral, int *ret, struct err *err)
{
    char source[LOOPDEV_PATH_MAX + 8];
    const char *const options[] = {
        source, "errors=remount-ro", "noinit_itable", "discard", ephemeral ? "nobarrier" : NULL,
        NULL};

    snprintf(source, sizeof(source), "source=%s", device);
    return mount_new("ext4", options, MOUNT_SAFE, ret, err);
}

int disk_mount(const char *image, bool ephemeral, int *ret, struct err *err)
{
    _cleanup_close_ int file = -1, device = -1;
    char path[LOOPDEV_PATH_MAX];

    file = open(image, O_RDWR | O_NOFOLLOW | O_CLOEXEC);
    if (file < 0)
        return err_sys(err, errno, "open '%s'", image);
    if (shim_disk_lock_image(file, image, err) < 0 ||
        loopdev_attach(file, path, &device, err) < 0 ||
        shim_disk_mount_device(path, ephemeral, ret, err) < 0)
        return err_wrap(err, "mount the sandbox's disk");
    return 0;
}

/* ---- the root of another spec ---- */

struct disk_hash {
    char text[128]; /* "": none */
};

static struct disk_hash shim_disk_read_hash(int dirfd, const char *name)
{
    struct disk_hash h;
    ssize_t n = readlinkat(dirfd, name, h.text, sizeof(h.text) - 1);

    h.text[n > 0 ? n : 0] = '\0';
    return h;
}

static int shim_disk_write_hash(int dirfd, const char *name, const char *hash, struct err *err)
{
    if ((unlinkat(dirfd, name, 0) < 0 && errno != ENOENT) || symlinkat(hash, dirfd, name) < 0)
        return err_sys(err, errno, "record the spec on the sandbox's disk");
    return 0;
}

int disk_drop_old(int dirfd, struct err *err)
{
    int r = rmtree(dirfd, OVERLAY_ROOT_OLD, err);

    if (r < 0)
        return r;
    if (unlinkat(dirfd, HASH_OLD, 0) < 0 && errno != ENOENT)
        return err_sys(err, errno, "delete the previous spec on the sandbox's disk");
    return 0;
}

static int shim_disk_put_back(int dirfd, struct err *err)
{
    int r = overlay_keep_undo_begin(dirfd, "cache", err);

    if (r < 0)
        return r;
    if (r > 0 &&
        ((r = rmtree(dirfd, "root", err)) < 0 || (r = overlay_keep_undo_end(dirfd, err)) < 0))
        return r;
    r = rmtree(dirfd, OVERLAY_ROOT_NEXT, err);
    if (r < 0)
        return r;
    return renameat(dirfd, HASH_OLD, dirfd, HASH_NAME) < 0
               ? err_sys(err, errno, "restore the previous spec on the sandbox's disk")
               : 0;
}

/* A root whose spec is not known is removed, not kept. */
static int shim_disk_keep(int dirfd, const char *hash, struct err *err)
{
    int r = disk_drop_old(dirfd, err);

    if (r < 0 || !*hash)
        return r;
    r = shim_disk_write_hash(dirfd, HASH_OLD, hash, err);
    if (r < 0)
        return r;
    r = overlay_renew_begin(dirfd, "cache", err);
    return r < 0 ? r : overlay_keep(dirfd, err);
}

/* The hash comes last: a run that is interrupted here returns to the old root, or starts again. */
static int shim_disk_make_root(int dirfd, const char *have, const char *want, struct err *err)
{
    int r;

    if ((r = shim_disk_keep(dirfd, have, err)) < 0 ||
        (r = overlay_renew_begin(dirfd, "cache", err)) < 0 ||
        (r = rmtree(dirfd, "root", err)) < 0 || (r = overlay_renew_end(dirfd, err)) < 0)
        return err_wrap(err, "create the sandbox's root again");
    return shim_disk_write_hash(dirfd, HASH_NAME, want, err);
}

int disk_renew(int dirfd, const char *hash, struct err *err)
{
    struct disk_hash have = shim_disk_read_hash(dirfd, HASH_NAME);
    struct disk_hash old = shim_disk_read_hash(dirfd, HASH_OLD);
    const char *want = *hash ? hash : "-";
    int r;

    if (*old.text && (STREQ(old.text, want) || STREQ(old.text, have.text))) {
        r = shim_disk_put_back(dirfd, err);
        if (r < 0)
            return r;
        have = old;
        old.text[0] = '\0';
    }
    if (STREQ(have.text, want))
        return *old.text != '\0';
    r = shim_disk_make_root(dirfd, have.text, want, err);
    return r < 0 ? r : *have.text != '\0';
}

/* ---- the reserve ---- */

/* An overlay makes its work folder again, and two files to try what the file system can. */
#define RESERVE "reserve"
enum { RESERVE_FOLDERS = 16, SCARCE_INODES = 64, SCARCE_BYTES = 1 << 20 };

int disk_release_reserve(int dirfd, struct err *err)
{
    struct statvfs fs;

    if (fstatvfs(dirfd, &fs) < 0)
        return err_sys(err, errno, "read the free space of the sandbox's disk");
    if (fs.f_ffree >= SCARCE_INODES && (uint64_t)fs.f_bfree * fs.f_frsize >= SCARCE_BYTES)
        return 0;
    return rmtree(dirfd, RESERVE, err);
}

/* The last folder exists: so do all. */
int disk_make_reserve(int dirfd, struct err *err)
{
    char name[32];

    snprintf(name, sizeof(name), RESERVE "/%d", RESERVE_FOLDERS - 1);
    if (faccessat(dirfd, name, F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return 0;
    if (mkdirat(dirfd, RESERVE, 0700) < 0 && errno != EEXIST)
        return err_sys(err, errno, "reserve space on the sandbox's disk");
    for (int i = 0; i < RESERVE_FOLDERS; i++) {
        snprintf(name, sizeof(name), RESERVE "/%d", i);
        if (mkdirat(dirfd, name, 0700) < 0 && errno != EEXIST)
            return err_sys(err, errno, "reserve space on the sandbox's disk");
    }
    return 0;
}

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

int disk_renew(int dirfd, const char *hash, struct err *err)
{
    const char *want = *hash ? hash : "-";
    char have[128];
    ssize_t n = readlinkat(dirfd, HASH_NAME, have, sizeof(have) - 1);

    have[n > 0 ? n : 0] = '\0';
    if (n > 0 && STREQ(have, want))
        return 0;
    /* The hash comes last: a run that is interrupted here does all of it again. */
    if (overlay_renew_begin(dirfd, "cache", err) < 0 || rmtree(dirfd, "root", err) < 0 ||
        overlay_renew_end(dirfd, err) < 0)
        return err_wrap(err, "create the sandbox's root again");
    if ((unlinkat(dirfd, HASH_NAME, 0) < 0 && errno != ENOENT) ||
        symlinkat(want, dirfd, HASH_NAME) < 0)
        return err_sys(err, errno, "record the spec on the sandbox's disk");
    return 0;
}

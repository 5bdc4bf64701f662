#include "lib/os/loopdev.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/loop.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/ioctl.h>

#include "lib/base/cleanup.h"

enum { ATTACH_TRIES = 64 };

/* Another process may take the device that we were told is free: then 0, and the caller asks again.
 */
static int loopdev_attach_to(int number, int image_fd, char *path, int *ret_fd, struct err *err)
{
    struct loop_config config = {.fd = (uint32_t)image_fd,
                                 .info = {.lo_flags = LO_FLAGS_AUTOCLEAR}};
    _cleanup_close_ int fd = -1;

    snprintf(path, LOOPDEV_PATH_MAX, "/dev/loop%d", number);
    fd = open(path, O_RDWR | O_CLOEXEC);
    if (fd < 0) {
        if (errno == ENXIO) /* removed meanwhile */
            return 0;
        return err_sys(err, errno, "open '%s'", path);
    }
    if (ioctl(fd, LOOP_CONFIGURE, &config) < 0) {
        if (errno == EBUSY)
            return 0;
        return err_sys(err, errno, "attach the image to '%s'", path);
    }
    *ret_fd = TAKE_FD(fd);
    return 1;
}

int loopdev_attach(int image_fd, char ret_path[static LOOPDEV_PATH_MAX], int *ret_fd,
                   struct err *err)
{
    _cleanup_close_ int control = open("/dev/loop-control", O_RDWR | O_CLOEXEC);

    if (control < 0)
        return err_sys(err, errno, "open '/dev/loop-control'");
    for (int i = 0; i < ATTACH_TRIES; i++) {
        int number = ioctl(control, LOOP_CTL_GET_FREE), r;

        if (number < 0)
            return err_sys(err, errno, "get a free loop device");
        r = loopdev_attach_to(number, image_fd, ret_path, ret_fd, err);
        if (r != 0)
            return r < 0 ? r : 0;
    }
    return err_set(err, ERR_SYSTEM, "get a free loop device: other processes took it %d times",
                   ATTACH_TRIES);
}

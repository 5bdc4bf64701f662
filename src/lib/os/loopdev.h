/*
 * Loop devices: a file as a block device. They use `autoclear`: the kernel detaches the file when
 * the last user closes the device, so a killed process leaves no device behind.
 */
#pragma once

#include "lib/base/err.h"

enum { LOOPDEV_PATH_MAX = 32 };

/*
 * Attaches the file behind image_fd (open for reading and writing) to a free device. The device
 * lives as long as *ret_fd is open or a file system on it is mounted; image_fd's open file
 * description, with its locks, lives in the kernel as long as the device.
 */
int loopdev_attach(int image_fd, char ret_path[static LOOPDEV_PATH_MAX], int *ret_fd,
                   struct err *err);

/*
 * The files of image `host` that ripcord brings itself: accounts, settings, and commands that the
 * machine lacks or that cannot work in a sandbox. The folder `usr` of the image is the layer below
 * the machine's /usr (supervisor/shim/setup-host.c), so its files only fill gaps.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

/* Opens a new file below dst. The mode is set explicitly: the umask belongs to the whole process,
 * and other threads create files at the same time. */
int host_files_create(int dst, const char *path, mode_t mode, int *ret, struct err *err);

/* What host_files_put() finds on the machine, for the fingerprint. */
uint64_t host_files_machine(int src);

/* src: the machine's root folder. dst: the image, which has all folders already. chown_home: the
 * agent's files belong to 1000. */
int host_files_put(int src, int dst, bool chown_home, struct err *err);

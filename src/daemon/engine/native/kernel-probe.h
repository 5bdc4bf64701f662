/*
 * Probes for the doctor: each really uses a feature of the kernel, in a child process. Only for
 * single-threaded callers.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/os/submap.h"

/* An ordinary user makes a user namespace and mounts in it (Ubuntu 24.04 allows the first and
 * refuses the second). */
int kernel_probe_user_namespace(struct err *err);
/* Mounts an overlay in a user namespace, with layers below dir that are id-mapped when `ranges`,
 * and writes a file in it. */
int kernel_probe_overlay(const char *dir, bool ranges, struct err *err);
/* Maps these ids with newuidmap and newgidmap. */
int kernel_probe_subids(const struct submap *ids, struct err *err);
/* Mounts a new /proc in new user, pid and mount namespaces. */
int kernel_probe_proc(bool ranges, struct err *err);

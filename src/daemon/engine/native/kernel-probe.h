/*
 * Trials for the doctor: small real uses of the kernel in child processes. Single-threaded callers
 * only.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/os/submap.h"

/* An ordinary user makes a user namespace and uses its rights (Ubuntu 24.04 grants the first and
 * refuses the second). */
int kernel_probe_user_namespace(struct err *err);
/* An overlay in a user namespace on layers below dir, id-mapped when `ranges`; a file is written.
 */
int kernel_probe_overlay(const char *dir, bool ranges, struct err *err);
/* newuidmap and newgidmap map these ids. */
int kernel_probe_subids(const struct submap *ids, struct err *err);
/* A new /proc in new user, pid and mount namespaces. */
int kernel_probe_proc(bool ranges, struct err *err);

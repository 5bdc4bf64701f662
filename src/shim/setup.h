/*
 * Building the inside of a sandbox: runs once, in pid 1 to be, with all capabilities over its fresh
 * namespaces. Each step takes the mount that becomes the root; nothing of the host is reachable
 * once setup_root() has pivoted, so the steps that need the host's trees (devices, proc) come
 * before.
 */
#pragma once

#include "base/err.h"
#include "shim/layers.h"
#include "shim/plan.h"

/* The root: overlay, home, host trees, tmpfs, then /dev /proc /sys and the user's mounts; pivots.
 */
int setup_root(const struct plan *plan, struct layers *layers, struct err *err);

int setup_dev(const struct plan *plan, int root_fd, struct err *err);
int setup_proc(int root_fd, struct err *err);
int setup_sys(const struct plan *plan, int root_fd, struct err *err);

/* A sized tmpfs at `path` inside. */
int setup_tmpfs(int root_fd, const char *path, uint64_t size, const char *mode, struct err *err);

/*
 * Building the inside of a sandbox: runs once, in pid 1 to be, with all capabilities over its fresh
 * namespaces. Each step takes the mount that becomes the root; nothing of the host is reachable
 * once setup_root() has pivoted, so the steps that need the host's trees (devices, proc) come
 * before.
 */
#pragma once

#include "lib/base/err.h"
#include "proto/plan.h"
#include "supervisor/shim/layers.h"

/*
 * The root: overlay, home, host trees, tmpfs, then /dev /proc /sys and the user's mounts; pivots.
 * memory_told: of struct shim; *ret_meminfo is then a descriptor of the file to keep up to date,
 * owned by the caller.
 */
int setup_root(const struct plan *plan, struct layers *layers, uint64_t memory_told,
               int *ret_meminfo, struct err *err);

int setup_dev(const struct plan *plan, int root_fd, struct err *err);
/* *ret_files: a tmpfs for small files of ours, attached (at a place that is covered later) so that
 * parts of it can be bound elsewhere. */
int setup_proc(int root_fd, int *ret_files, struct err *err);
/* Binds `name` of those files, read-only when asked, over root_fd/path. */
int setup_bind_file(int files, const char *name, bool read_only, int root_fd, const char *path,
                    struct err *err);
/* setup-proc-view.c: /proc/meminfo, /proc/cpuinfo and /etc/resolv.conf as this sandbox should see
 * them.
 */
int setup_proc_view(const struct plan *plan, uint64_t memory_told, int files, int root_fd,
                    int *ret_meminfo, struct err *err);
int setup_sys(const struct plan *plan, int files, int root_fd, struct err *err);

/* A sized tmpfs at `path` inside. */
int setup_tmpfs(int root_fd, const char *path, uint64_t size, const char *mode, struct err *err);

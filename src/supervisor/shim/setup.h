/*
 * Building the inside of a sandbox. It runs once, in the process that becomes pid 1, with all
 * capabilities over its new namespaces. root_fd is the mount that becomes the root. After
 * setup_root() has pivoted, no file of the host is reachable, so the steps that need the host's
 * trees (devices, proc) come before.
 */
#pragma once

#include "lib/base/err.h"
#include "proto/plan.h"
#include "supervisor/shim/layers.h"

/*
 * Builds the root (overlay, home, host trees, tmpfs, /dev, /proc, /sys, the user's mounts) and
 * pivots into it. memory_shown: see struct shim; if it is not 0, *ret_meminfo is a descriptor of
 * the file behind /proc/meminfo, which the caller owns and keeps up to date.
 */
int setup_root(const struct plan *plan, struct layers *layers, uint64_t memory_shown,
               int *ret_meminfo, struct err *err);

/* setup-host.c: the host's /usr and /opt, if the image is the host's. The working folder is the
 * scaffold. */
int setup_host_trees(const struct plan *plan, const struct layers *layers, int scaffold,
                     int root_fd, struct err *err);
/* A detached tmpfs with the devices, which only the machine's root may make. *ret stays -1 where
 * the kernel refuses that: in a container's user namespace, for example. */
int setup_dev_nodes(const struct plan *plan, int *ret, struct err *err);
/* nodes: that tmpfs; -1: the host's devices are bound. */
int setup_dev(const struct plan *plan, int nodes, int root_fd, struct err *err);
/* proc: a detached /proc, or -1: one is mounted. *ret_files: a tmpfs for our small files. It is
 * attached where a later mount covers it, so that its files can be bound elsewhere. */
int setup_proc(const struct plan *plan, int proc, int root_fd, int *ret_files, struct err *err);
/* Binds file `name` of that tmpfs over root_fd/path. */
int setup_bind_file(int files, const char *name, bool read_only, int root_fd, const char *path,
                    struct err *err);
/* setup-proc-view.c: /proc/meminfo, /proc/cpuinfo and /etc/resolv.conf for this sandbox. */
int setup_proc_view(const struct plan *plan, uint64_t memory_shown, int files, int root_fd,
                    int *ret_meminfo, struct err *err);
int setup_sys(const struct plan *plan, int files, int root_fd, struct err *err);

/* Mounts a tmpfs of `size` bytes at `path` inside. */
int setup_tmpfs(int root_fd, const char *path, uint64_t size, const char *mode, struct err *err);

/*
 * Pid 1 of a sandbox: builds the inside, reports to the shim, then only waits. It then has no
 * capabilities, no signal handlers and no protocol. The kernel reaps orphans, because SIGCHLD is
 * ignored. When its socket to the shim ends, pid 1 exits, and the kernel then kills every process
 * in the pid namespace.
 */
#pragma once

#include "lib/base/macro.h"
#include "lib/os/cgroup.h"
#include "proto/plan.h"

struct init_args {
    const struct plan *plan;
    const struct cgroup *cgroup;
    const struct cgroup_group *group;
    uint64_t memory_shown; /* as in struct shim */
    int sock;              /* to the shim */
    int ready_pipe;        /* one byte into it: the sandbox is built; or -1 */
};

/* Descriptors that pid 1 sends with READY; SUP_TAG_FLAGS has a bit for each one that is there. */
enum init_fd { INIT_FD_MEMINFO, INIT_FD_LISTENER, INIT_FDS };

/* In the cloned child. Never returns. */
_noreturn_ void init_main(const struct init_args *args);

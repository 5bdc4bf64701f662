/*
 * Pid 1 of a sandbox: builds the inside, reports, then does nothing but be there. It has no
 * capabilities, no handlers and no protocol by then: children that lose their parent are reaped by
 * the kernel (SIGCHLD is ignored), and the end of its socket to the shim is its order to leave,
 * with which the kernel ends everything in the pid namespace.
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
    int sock;             /* to the shim */
    int ready_pipe;       /* a byte into it: the sandbox is there; or -1 */
};

/* What comes with pid 1's READY to the shim; SUP_TAG_FLAGS has a bit for each that does. */
enum init_fd { INIT_FD_MEMINFO, INIT_FD_LISTENER, INIT_FDS };

/* In the cloned child. Never returns. */
_noreturn_ void init_main(const struct init_args *args);

/*
 * Checks the sources of mounts: the folders of the machine that a sandbox may get. A source is
 * opened without following symlinks. It is refused when it is, contains or is inside a place that
 * would break the isolation: the system's own trees, sockets and stores of engines, our state.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

struct mount_source {
    uint64_t dev, ino; /* of the checked source: the shim compares them */
    uint32_t uid, gid;
    uint32_t mode;
};

/* own: NULL-terminated absolute paths of ours, refused beside the fixed list. ERR_INVALID,
 * ERR_NOT_FOUND or ERR_DENIED. */
int mount_source_check(const char *path, const char *const *own, struct mount_source *ret,
                       struct err *err);

/* Whether the agent cannot write to the source because its owner is root, who is squashed
 * (struct plan_mount in proto/plan.h). */
bool mount_source_is_root_only(const struct mount_source *src);

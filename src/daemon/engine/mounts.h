/*
 * Which folders of the machine a sandbox may be given. A source is opened without following any
 * symlink, and refused when it is, holds or lies in a place whose sharing would break the sandbox's
 * walls: the system's own trees, engines' sockets and stores, our state.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

struct mount_source {
    uint64_t dev, ino; /* of what was checked: the shim compares */
};

/* own: NULL-terminated absolute paths of ours, refused beside the fixed list. ERR_INVALID,
 * ERR_NOT_FOUND or ERR_DENIED. */
int mount_source_check(const char *path, const char *const *own, struct mount_source *ret,
                       struct err *err);

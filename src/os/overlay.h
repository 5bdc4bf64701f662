/*
 * overlayfs inside a user namespace. Layer names are resolved in the working directory and show in
 * the mount table as given: callers stand in a scaffold and use short relative names.
 */
#pragma once

#include <stdbool.h>

#include "base/err.h"

struct overlay {
    const char *lower, *upper, *work; /* relative names */
    bool throw_away; /* the upper layer is never mounted again: skip all syncing of it */
};

/* A detached mount, nosuid and nodev. */
int overlay_mount(const struct overlay *o, int *ret, struct err *err);

/*
 * Roots of image `host` without an overlay, for machines whose state folder cannot hold an upper
 * layer: a container without a volume (its own root is an overlay), a home on NFS. The sandbox gets
 * a copy of the image's skeleton in its folder; /usr and /opt stay the machine's. Other images are
 * refused there, because each sandbox would copy all of their files.
 *
 * All paths are below the scaffold, which is the working folder.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "proto/plan.h"

/* Whether this is the next best way, after an overlay was refused. */
bool setup_plain_is_possible(const struct plan *plan);

/* Detached mounts. The copies are made at the first start, each whole or not at all. */
int setup_plain_root(int *ret, struct err *err);
int setup_plain_home(int *ret, struct err *err);
/* The upper folder of a tool's cache, without the base. */
int setup_plain_cache(const char *tool, int *ret, struct err *err);

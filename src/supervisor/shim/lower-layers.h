/*
 * The names of a sandbox's lower layers in the scaffold of its root: `lower` alone, or one short
 * link per layer for an image of several layers. The links are short because the kernel accepts at
 * most 255 bytes for all names together.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "proto/plan.h"

enum { LOWER_MAX = 255, LOWER_BELOW_MAX = 16 };

/* Creates the links; `lower` is already mounted in the scaffold. */
int lower_link(const struct plan *plan, int scaffold, struct err *err);
/* The values of overlayfs's option `lowerdir`: for the root, and for /home/agent ("none" if no
 * layer has that folder). */
int lower_root(const struct plan *plan, struct buf *ret, struct err *err);
int lower_home(const struct plan *plan, int scaffold, struct buf *ret, struct err *err);
/* The folder `name` of the skeleton of image `host`, which is the lowest layer. */
void lower_below(const struct plan *plan, const char *name, char ret[static LOWER_BELOW_MAX]);

/*
 * The lower layers of a sandbox as names in the scaffold of its root: `lower` alone, or, for an
 * image of several layers, one short link for each, as the kernel takes 255 bytes for all of them.
 */
#pragma once

#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "proto/plan.h"

enum { LOWER_MAX = 255 };

/* Makes the links; `lower` is mounted in the scaffold. */
int lower_link(const struct plan *plan, int scaffold, struct err *err);
/* As overlayfs's option wants them: for the root, and for /home/agent ("none" where no layer has
 * that folder). */
int lower_root(const struct plan *plan, struct buf *ret, struct err *err);
int lower_home(const struct plan *plan, int scaffold, struct buf *ret, struct err *err);

/*
 * Image `host`: the lower layer of sandboxes that run the machine's own programs. A small folder
 * tree with the usr-merge links as the machine has them, accounts of its own, and copies of those
 * /etc files that programs need and everybody may read. /usr and /opt are empty here: the shim
 * binds the machine's own.
 *
 * A generation is never changed once it is there (sandboxes run on it): other content gets another
 * folder, named by a fingerprint of what it is made from.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/strv.h"

struct host_image_source {
    const char *root; /* "/" but in tests: where the links and /etc are read */
    bool chown_home;  /* ids on disk are 0-based and /home/agent is to belong to 1000 */
};

/* Makes sure that images_dir holds the present generation; *ret is its absolute path. */
int host_image_ensure(const char *images_dir, const struct host_image_source *src, char **ret,
                      struct err *err);

/* Removes generations and half-built folders in images_dir but for those named in `keep` (whole
 * paths). Best effort. */
void host_image_prune(const char *images_dir, char *const *keep);

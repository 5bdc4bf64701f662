/*
 * Image `host`: the lower layer of sandboxes that run the machine's own programs. It is a small
 * folder tree with the machine's usr-merge links, its own accounts, and copies of the files in /etc
 * that programs need and everybody may read. /usr holds only what the machine's lacks, and /opt is
 * empty: the shim puts the machine's folders above them.
 *
 * A generation never changes, because sandboxes run on it. Other contents get another folder, named
 * by a fingerprint of the sources.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/base/strv.h"

struct host_image_source {
    const char *root; /* the folder with the links and /etc: "/", another in tests */
    bool chown_home;  /* ids on disk are 0-based and /home/agent belongs to 1000 */
};

/* Makes the current generation in images_dir unless it exists; *ret is its absolute path. */
int host_image_ensure(const char *images_dir, const struct host_image_source *src, char **ret,
                      struct err *err);

/* Adds the absolute paths of the files and folders of /etc that the image takes, as they are on the
 * machine with this root folder. */
void host_image_list_etc(const char *root, char ***ret);

/* Removes all generations and half-built folders in images_dir except those in `keep` (absolute
 * paths). Best effort. */
void host_image_prune(const char *images_dir, char *const *keep);

/*
 * Mount points of a RUN that its image does not have. The sandbox makes them in the new layer,
 * where they do not belong. They are noted before the command runs, and removed after it if they
 * are still empty.
 */
#pragma once

#include "image/build/workspace.h"
#include "lib/base/err.h"

struct mount_placeholders {
    char **paths; /* owned: missing paths without a leading slash, parents first */
};

/* Notes a mount point and its parent folders, if they are missing. layers: bottom first. */
void mount_placeholders_note(struct mount_placeholders *s, const struct workspace *w,
                             char *const *layers, const char *target);
/* Removes them from layer n. A folder that is not empty stays. */
void mount_placeholders_remove(const struct mount_placeholders *s, const struct workspace *w,
                               unsigned n);
void mount_placeholders_done(struct mount_placeholders *s);

/*
 * Places that a RUN needs mounts at and that its image does not have: they are made in the new
 * layer, where they do not belong. Noted before the command runs, taken away after it when nothing
 * has come to lie there.
 */
#pragma once

#include "image/build/workspace.h"
#include "lib/base/err.h"

struct mount_placeholders {
    char **paths; /* owned: absolute, those that are not there, the deepest last */
};

/* Of one place: itself and the folders on the way to it. layers: bottom first. */
void mount_placeholders_note(struct mount_placeholders *s, const struct workspace *w,
                             char *const *layers, const char *target);
/* From layer n of the build; what cannot be removed stays. */
void mount_placeholders_remove(const struct mount_placeholders *s, const struct workspace *w,
                               unsigned n);
void mount_placeholders_done(struct mount_placeholders *s);

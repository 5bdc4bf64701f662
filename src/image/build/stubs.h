/*
 * Places that a RUN needs mounts at and that its image does not have: they are made in the new
 * layer, where they do not belong. Noted before the command runs, taken away after it when nothing
 * has come to lie there.
 */
#pragma once

#include "image/build/work.h"
#include "lib/base/err.h"

struct stubs {
    char **paths; /* owned: absolute, those that are not there, the deepest last */
};

/* Of one place: itself and the folders on the way to it. layers: bottom first. */
void stubs_note(struct stubs *s, const struct work *w, char *const *layers, const char *target);
/* From layer n of the build; what cannot be removed stays. */
void stubs_remove(const struct stubs *s, const struct work *w, unsigned n);
void stubs_done(struct stubs *s);

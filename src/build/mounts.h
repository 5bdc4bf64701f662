/*
 * RUN --mount: which folder or file of the store stands behind each, made ready and held until the
 * command has ended. Cache mounts persist: mounts/<digest of their id>/<slot>, with a lock beside
 * each slot.
 *
 *   shared    slot 0, with all others who share
 *   locked    slot 0, alone: waits for those who have it
 *   private   the first slot that nobody has
 */
#pragma once

#include "base/err.h"
#include "base/json.h"
#include "build/plan.h"
#include "build/work.h"

enum { MOUNTS_SLOTS = 64 };

struct mounts {
    json_t *list;    /* [{"source": below the store, "target", "read_only"}]; owned */
    json_t *secrets; /* [{"id", "target", "env", "required"}]; owned */
    char **held_ids; /* owned: whose slots are held, */
    int *locks;      /* by these; -1: another mount of this step has it */
    size_t n_locks;
};

/* Fills in the layers of a stage or an image. */
typedef int (*mounts_from_fn)(void *arg, const struct build_from *from, char ***ret,
                              struct err *err);

int mounts_prepare(struct work *w, const struct build_step *s, mounts_from_fn from, void *arg,
                   struct mounts *ret, struct err *err);
void mounts_done(struct mounts *m);

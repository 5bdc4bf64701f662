/*
 * RUN --mount: prepares the folder or file of the store behind each mount, and holds it until the
 * command has ended. Contents of cache mounts persist (image/archive/mount-cache.h).
 */
#pragma once

#include "image/archive/mount-cache.h"
#include "image/build/plan.h"
#include "image/build/workspace.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

struct mounts {
    json_t *list;             /* [{"source": below the store, "target", "read_only"}]; owned */
    json_t *secrets;          /* [{"id", "name", "target", "env", "required", "uid", …}]; owned */
    char **held_ids;          /* owned: ids of the cache mounts in `held` */
    struct mount_cache *held; /* owned: locked cache mounts */
    size_t n_held;
    pid_t *agents; /* owned: running relays of ssh agents (agent.h) */
    size_t n_agents;
};

/* Returns the layers of a stage or an image. */
typedef int (*mounts_from_fn)(void *arg, const struct build_from *from, char ***ret,
                              struct err *err);

/* agents: "ID=SOCKET". *ret is released with mounts_done(). */
int mounts_prepare(struct workspace *w, const struct build_plan_step *s, char *const *agents,
                   mounts_from_fn from, void *arg, struct mounts *ret, struct err *err);
void mounts_done(struct mounts *m);

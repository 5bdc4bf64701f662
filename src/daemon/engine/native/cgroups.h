/*
 * The cgroups of this root's sandboxes, also those of sandboxes that an earlier daemon started.
 * That daemon may have had another place for them (lib/os/cgroup-place.h): it ran in another unit,
 * or was started from another session. The file <run>/cgroups lists the places; it goes with the
 * machine's reboot, as the cgroups do.
 *
 * Not changed after open, so all threads may use it.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"
#include "lib/os/cgroup-place.h"

struct native_cgroups {
    char *root_id;
    struct cgroup_place place; /* of new sandboxes */
    char **parents;            /* all places of this root */
};

#define NATIVE_CGROUPS_INIT                                                                        \
    {                                                                                              \
        .place = CGROUP_PLACE_INIT                                                                 \
    }

/* Prepares the place for new sandboxes. Without one, sandboxes run without cgroups. */
int native_cgroups_open(struct native_cgroups *c, const char *run_dir, const char *root_id,
                        struct err *err);
/* Also removes this root's own folders, if no sandbox is in them. */
void native_cgroups_close(struct native_cgroups *c);

/* As in lib/os/cgroup.h. */
int native_cgroups_sweep(const struct native_cgroups *c, const char *id, struct err *err);
bool native_cgroups_are_rest(const struct native_cgroups *c, const char *id);
int native_cgroups_list(const struct native_cgroups *c, char ***ret, struct err *err);

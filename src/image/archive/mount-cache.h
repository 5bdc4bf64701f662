/*
 * Cache mounts of builds (RUN --mount=type=cache) in the image store:
 *
 *   mounts/<digest of the id>/id          the id; its time is the time of the last use
 *   mounts/<digest>/<slot>                the mounted folder; slots above 0 only for private mounts
 *   mounts/<digest>/<slot>.lock           held by the users of that slot
 *   mounts/<digest>/lock                  the use lock, held shared by all users of the mount
 *   mounts/<digest>/size                  the measured size, and the last use before it was measured
 *
 * To remove a mount, a process takes the use lock exclusively, and moves the folder away before it
 * releases the lock. A process that has waited for the lock therefore checks that its open folder
 * is still at its path.
 */
#pragma once

#include <stdint.h>

#include "image/archive/confined.h"
#include "image/store/images.h"
#include "lib/base/err.h"
#include "lib/base/json.h"

enum { MOUNT_CACHE_SLOTS = 64, MOUNT_CACHE_ID_MAX = 4096 };

/* ---- for builds ---- */

enum mount_cache_share {
    MOUNT_CACHE_SHARED,  /* slot 0, shared with other builds */
    MOUNT_CACHE_LOCKED,  /* slot 0, exclusively: waits for the other users */
    MOUNT_CACHE_PRIVATE, /* the first free slot, exclusively */
};

struct mount_cache {
    char *folder; /* owned: its path in the store */
    int dir;
    unsigned slot;
    int use_lock; /* keeps the mount from being removed */
    int lock;     /* of the slot */
};

#define MOUNT_CACHE_INIT                                                                           \
    {                                                                                              \
        .dir = -1, .use_lock = -1, .lock = -1                                                      \
    }

/* Creates the mount if it is missing. Waits for builds that hold the slot. */
int mount_cache_take(const struct images *s, const char *id, enum mount_cache_share share,
                     struct mount_cache *ret, struct err *err);
void mount_cache_done(struct mount_cache *c);

/* ---- for people ---- */

/* {"mounts": [{"id", "bytes", "last_used" (seconds since the epoch), "in_use"}], "bytes"}, the
 * last used one first. */
int mount_cache_list(const struct images *s, const struct confined_ids *ids, json_t **ret,
                     struct err *err);

/* The functions below need the store's lock, shared. *ret: {"removed", "bytes", "mounts": [id…]}. */

/* Fails with ERR_NOT_FOUND, or with ERR_CONFLICT while a build uses it. */
int mount_cache_remove(const struct images *s, const struct confined_ids *ids, const char *id,
                       json_t **ret, struct err *err);
/* Removes the mounts that were not used for `unused` seconds (0: none), then the longest unused ones
 * until at most `keep` bytes are left. Mounts that builds use stay. */
int mount_cache_trim(const struct images *s, const struct confined_ids *ids, uint64_t keep,
                     uint64_t unused, json_t **ret, struct err *err);

/*
 * Cache mounts of builds (RUN --mount=type=cache), as they lie in the store:
 *
 *   mounts/<digest of its id>/id          the id; its time is that of the last use
 *   mounts/<digest>/<slot>                what is mounted; more than one only where it is private
 *   mounts/<digest>/<slot>.lock           held by who uses that slot
 *   mounts/<digest>/lock                  held, shared, by everybody who uses one of them
 *   mounts/<digest>/size                  what was measured, and after which use
 *
 * Who removes one takes that lock alone and moves it out of its place before it lets it go: who has
 * waited for it looks whether the folder is still that of the mount.
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
    MOUNT_CACHE_SHARED,  /* slot 0, with all others who share */
    MOUNT_CACHE_LOCKED,  /* slot 0, alone: waits for those who have it */
    MOUNT_CACHE_PRIVATE, /* the first slot that nobody has */
};

struct mount_cache {
    char *folder; /* owned: below the store's */
    int dir;
    unsigned slot;
    int use_lock, lock; /* that it is used at all, and how */
};

#define MOUNT_CACHE_INIT                                                                           \
    {                                                                                              \
        .dir = -1, .use_lock = -1, .lock = -1                                                      \
    }

/* Made when it is not there; waits for those who lock it. */
int mount_cache_take(const struct images *s, const char *id, enum mount_cache_share share,
                     struct mount_cache *ret, struct err *err);
void mount_cache_done(struct mount_cache *c);

/* ---- for people ---- */

/* {"mounts": [{"id", "bytes", "last_used" (seconds since the epoch), "in_use"}], "bytes"}, the one
 * that was used last first. */
int mount_cache_list(const struct images *s, const struct confined_ids *ids, json_t **ret,
                     struct err *err);

/* Those below need the store's lock, shared. *ret: {"removed", "bytes", "mounts": [id…]}. */

/* ERR_NOT_FOUND, or ERR_CONFLICT when a build uses it. */
int mount_cache_remove(const struct images *s, const struct confined_ids *ids, const char *id,
                       json_t **ret, struct err *err);
/* Removes what was not used for `unused` seconds (0: all are young), then the longest unused until
 * `keep` bytes are left. What builds use stays. */
int mount_cache_trim(const struct images *s, const struct confined_ids *ids, uint64_t keep,
                     uint64_t unused, json_t **ret, struct err *err);

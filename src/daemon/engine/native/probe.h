/*
 * The rights of this process, found by the same conditions that the kernel checks, never by
 * `geteuid() == 0`: uid 0 under `unshare -r` has hardly any rights.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Whether this process may map ids [first, first + count) into a user namespace: it has the
 * capabilities, and the ids exist in its own user namespace. */
/* Whether we have these capabilities (1 << CAP_X) and the ids exist. */
bool probe_can_become(uint64_t caps, uint64_t first, uint64_t count);
bool probe_id_ranges(uint64_t first, uint64_t count);

/* Whether these uids and gids exist in our own user namespace. */
bool probe_ids_exist(uint64_t first, uint64_t count);
/* Whether this uid and gid exist there. */
bool probe_id_exists(uint32_t id);

/* Whether one line of a uid_map or gid_map text covers the range. */
bool probe_map_covers(const char *map, uint64_t first, uint64_t count);

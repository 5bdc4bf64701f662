/*
 * What this process may do here, found out by looking at what the kernel checks, never by
 * `geteuid() == 0`: uid 0 under `unshare -r` has next to nothing.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* Whether ids [first, first + count) may be mapped into a user namespace of ours: the capabilities
 * for it, and the ids exist in our own user namespace. */
bool probe_id_ranges(uint64_t first, uint64_t count);

/* Whether there is such a user and group in our own user namespace. */
bool probe_id_exists(uint32_t id);

/* Whether one line of a uid_map or gid_map text covers the range. */
bool probe_map_covers(const char *map, uint64_t first, uint64_t count);

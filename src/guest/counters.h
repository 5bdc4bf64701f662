/*
 * Counters of the container's own cgroup files: v2, or v1 as engines mount it. GUEST_UNKNOWN for a
 * counter that cannot be read.
 */
#pragma once

#include <stdint.h>

struct guest_counters {
    uint64_t memory_peak, memory_limit;
    uint64_t oom_kills, pids_denied;
};

void counters_read(struct guest_counters *ret);

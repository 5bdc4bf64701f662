/*
 * What the container's own cgroup files count: v2, or v1 as engines show it. GUEST_UNKNOWN for each
 * that cannot be read.
 */
#pragma once

#include <stdint.h>

struct guest_counters {
    uint64_t memory_peak, memory_limit;
    uint64_t oom_kills, pids_denied;
};

void counters_read(struct guest_counters *ret);

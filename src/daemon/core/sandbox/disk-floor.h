/*
 * The free-space floor: by default a sandbox may write as much as the disk holds, so below a floor
 * of free space no new work is taken; what runs goes on, and stop, rm and logs always work. Below
 * half of it the sandbox that grows fastest is stopped, its files stay.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

struct manager;

/* Of one manager: who grows, looked at only while less than the floor is free. */
struct disk_floor_watch {
    uint64_t next;    /* time_mono() of the next look */
    unsigned pending; /* sandboxes that are being measured */
    unsigned round;   /* numbers the looks: two in a row make a growth */
};

/* ERR_LIMIT, with the figures, when less than the floor is free where sandboxes are kept, or the
 * daemon is about to run out of descriptors. */
int disk_floor_check(const struct manager *m, struct err *err);
/* From manager_tick(). */
void disk_floor_tick(struct manager *m);

/*
 * The free-space floor. By default a sandbox may write as much as the disk holds, so new work is
 * refused when less than the floor is free. Running work goes on, and stop, rm and logs always
 * work. Below half of the floor the sandbox that grows fastest is stopped; its files stay.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

struct manager;

/* The growth of sandboxes; they are measured only while less than the floor is free. */
struct disk_floor_watch {
    uint64_t next;    /* time_mono() of the next measurement */
    unsigned pending; /* sandboxes that are being measured */
    unsigned round;   /* number of the measurement: growth needs two in a row */
};

/* ERR_LIMIT, with the figures, when less than the floor is free, or the daemon is about to run
 * out of descriptors. */
int disk_floor_check(const struct manager *m, struct err *err);
/* Called by manager_tick(). */
void disk_floor_tick(struct manager *m);

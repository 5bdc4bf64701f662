/*
 * A clock for leases: it counts the time that this machine has been on, suspended or not, across
 * restarts of the daemon and of the machine. It does not follow the wall clock, so nothing is
 * stopped or removed because somebody set that. What it does not count is the time that the machine
 * was off, and of a boot in which no daemon ran; after a power cut it may repeat the last minute.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

struct store;

struct lease_clock {
    struct store *store; /* borrowed */
    uint64_t base;       /* what time_mono() is added to; of this boot */
    uint64_t saved;      /* the reading that the store has */
};

int lease_clock_open(struct store *store, struct lease_clock *ret, struct err *err);
uint64_t lease_clock_now(const struct lease_clock *u); /* microseconds; never 0 */
/* Microseconds since a reading; 0 when it is of the future. */
uint64_t lease_clock_since(const struct lease_clock *u, uint64_t reading);
/* To be called now and then: puts the reading into the store once a minute. */
void lease_clock_tick(struct lease_clock *u);

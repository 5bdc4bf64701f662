/*
 * The clock of leases. It counts the time that this machine is on, suspended or not, across
 * restarts of the daemon and of the machine. It does not follow the wall clock: setting the date
 * stops and removes nothing. It does not count the time that the machine is off, nor a boot in
 * which no daemon ran. After a power cut it may repeat the last minute.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"

struct store;

struct lease_clock {
    struct store *store; /* borrowed */
    uint64_t base;       /* added to time_mono(); valid for this boot */
    uint64_t saved;      /* the reading in the store */
};

int lease_clock_open(struct store *store, struct lease_clock *ret, struct err *err);
uint64_t lease_clock_now(const struct lease_clock *u); /* microseconds; never 0 */
/* Microseconds since a reading; 0 when the reading lies in the future. */
uint64_t lease_clock_since(const struct lease_clock *u, uint64_t reading);
/* To be called regularly: saves the reading once a minute. */
void lease_clock_tick(struct lease_clock *u);

/*
 * Waiting for another worker with a deadline. Condition variables know no CLOCK_BOOTTIME, on which
 * deadlines count, so that a wait is cut into slices of CLOCK_MONOTONIC; the caller looks at its
 * deadline between them.
 */
#pragma once

#include <pthread.h>

void wait_cond_init(pthread_cond_t *c);
/* With the lock held: until it is signalled, or for a fifth of a second. */
void wait_a_slice(pthread_cond_t *c, pthread_mutex_t *lock);

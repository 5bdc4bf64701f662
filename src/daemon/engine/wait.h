/*
 * Waits for another worker with a deadline. Condition variables do not support CLOCK_BOOTTIME, the
 * clock of deadlines, so a wait is cut into slices of CLOCK_MONOTONIC; the caller checks its
 * deadline between them.
 */
#pragma once

#include <pthread.h>

void wait_cond_init(pthread_cond_t *c);
/* With the lock held: returns when it is signalled, or after a fifth of a second. */
void wait_a_slice(pthread_cond_t *c, pthread_mutex_t *lock);

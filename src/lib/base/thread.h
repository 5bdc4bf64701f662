/* Threads beside the event loop. */
#pragma once

#include <pthread.h>

/* Starts a thread that blocks all signals: the thread of the loop handles them. Returns 0 or an
 * errno. */
int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg);

#include "daemon/engine/wait.h"

#include <time.h>

#define NSEC_PER_SEC 1000000000L
#define SLICE_NSEC (NSEC_PER_SEC / 5)

void wait_cond_init(pthread_cond_t *c)
{
    pthread_condattr_t attr;

    pthread_condattr_init(&attr);
    pthread_condattr_setclock(&attr, CLOCK_MONOTONIC);
    pthread_cond_init(c, &attr);
    pthread_condattr_destroy(&attr);
}

void wait_a_slice(pthread_cond_t *c, pthread_mutex_t *lock)
{
    struct timespec until;

    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += SLICE_NSEC;
    if (until.tv_nsec >= NSEC_PER_SEC) {
        until.tv_nsec -= NSEC_PER_SEC;
        until.tv_sec++;
    }
    pthread_cond_timedwait(c, lock, &until);
}

#include "lib/base/thread.h"

#include <signal.h>

int thread_start(pthread_t *ret, void *(*fn)(void *), void *arg)
{
    sigset_t all, old;
    int r;

    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(ret, NULL, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    return r;
}

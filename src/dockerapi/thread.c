#include "dockerapi/thread.h"

#include <pthread.h>
#include <signal.h>

enum { STACK = 512 << 10 }; /* enough for a TLS handshake and for name service modules */

int docker_thread(void *(*fn)(void *), void *arg)
{
    pthread_attr_t attr;
    sigset_t all, old;
    pthread_t id;
    int r;

    sigfillset(&all);
    pthread_attr_init(&attr);
    pthread_attr_setdetachstate(&attr, PTHREAD_CREATE_DETACHED);
    pthread_attr_setstacksize(&attr, STACK);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    r = pthread_create(&id, &attr, fn, arg);
    pthread_sigmask(SIG_SETMASK, &old, NULL);
    pthread_attr_destroy(&attr);
    return r;
}

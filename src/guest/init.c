/*
 * `guest init`: pid 1 of the container. It reaps orphans, and ends on a signal of the engine. It
 * ignores signals from inside: the kernel shows a sender outside the pid namespace as pid 0.
 */
#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "guest/modes.h"
#include "guest/proc-tree.h"

int guest_init(char **argv _unused_, struct err *err _unused_)
{
    siginfo_t si;
    sigset_t all;

    prctl(PR_SET_NAME, PROC_TREE_INIT_NAME, 0, 0, 0);
    signal(SIGCHLD, SIG_IGN); /* the kernel reaps */
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, NULL);
    stdio_close();
    for (;;)
        if (sigwaitinfo(&all, &si) == SIGTERM && si.si_pid == getppid())
            return 0;
}

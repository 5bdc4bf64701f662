#include "lib/os/pidfd.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"

enum { CGROUP_FILE_MAX = 64 << 10, CGROUP_OWNER_MIN = 32 };

int pidfd_open_pid(pid_t pid, int *ret, struct err *err)
{
    int fd = (int)syscall(SYS_pidfd_open, pid, 0);

    if (fd < 0)
        return err_sys(err, errno, "open process %d", (int)pid);
    *ret = fd;
    return 0;
}

int pidfd_signal(int pidfd, int sig)
{
    return syscall(SYS_pidfd_send_signal, pidfd, sig, NULL, 0) < 0 ? -errno : 0;
}

bool pidfd_in_cgroup(int pidfd, pid_t pid, const char *name)
{
    _cleanup_free_ char *groups = NULL;
    char path[32];

    snprintf(path, sizeof(path), "/proc/%d/cgroup", (int)pid);
    if (strlen(name) < CGROUP_OWNER_MIN ||
        file_read(AT_FDCWD, path, CGROUP_FILE_MAX, &groups, NULL, NULL) < 0)
        return false;
    /* It is still alive, so the file belonged to the process behind the descriptor. */
    return strstr(groups, name) && pidfd_signal(pidfd, 0) != -ESRCH;
}

/* Converts the result of waitid(2) to the status word of waitpid(2). */
static int pidfd_status_word(const siginfo_t *si)
{
    if (si->si_code == CLD_EXITED)
        return (si->si_status & 0xff) << 8;
    return (si->si_status & 0x7f) | (si->si_code == CLD_DUMPED ? 0x80 : 0);
}

int pidfd_reap(int pidfd, bool block, int *status, struct rusage *usage)
{
    siginfo_t si = {0};
    long r;

    /* The system call, unlike libc's waitid(), also fills a rusage. */
    do
        r = syscall(SYS_waitid, P_PIDFD, pidfd, &si, WEXITED | (block ? 0 : WNOHANG), usage);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    if (!si.si_pid)
        return 0;
    if (status)
        *status = pidfd_status_word(&si);
    return 1;
}

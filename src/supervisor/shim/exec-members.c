#include "supervisor/shim/exec-members.h"

#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include "lib/base/cleanup.h"
#include "lib/os/pidfd.h"

enum { LOOKS_MAX = 500, PAUSE_NSEC = 1000000 };

static bool exec_members_has_mark(int proc, const char *pid, const struct stat *mark)
{
    char path[NAME_MAX + 16];
    struct stat st;

    snprintf(path, sizeof(path), "%s/ns/cgroup", pid);
    return fstatat(proc, path, &st, 0) == 0 && st.st_ino == mark->st_ino &&
           st.st_dev == mark->st_dev;
}

/* We compare the namespace after we have opened the pidfd: if the pid is reused in between, the
 * signal goes to the dead process and not to its successor. */
static bool exec_members_kill_one(int proc, const char *name, const struct stat *mark)
{
    _cleanup_close_ int pidfd = -1;
    int pid = (int)strtol(name, NULL, 10);

    if (pid <= 0 || pidfd_open_pid(pid, &pidfd, NULL) < 0 ||
        !exec_members_has_mark(proc, name, mark))
        return false;
    pidfd_signal(pidfd, SIGKILL);
    return true;
}

/* /proc lists pids in ascending order, so one scan meets most children of a fork bomb. */
static bool exec_members_scan(DIR *proc, const struct stat *mark)
{
    bool found = false;

    rewinddir(proc);
    for (const struct dirent *e; (e = readdir(proc));)
        found |= exec_members_kill_one(dirfd(proc), e->d_name, mark);
    return found;
}

bool exec_members_kill(int mark)
{
    const struct timespec pause = {.tv_nsec = PAUSE_NSEC};
    _cleanup_closedir_ DIR *proc = opendir("/proc");
    struct stat st;

    if (!proc || fstat(mark, &st) < 0)
        return false;
    for (int i = 0; i < LOOKS_MAX; i++) {
        if (!exec_members_scan(proc, &st))
            return true;
        nanosleep(&pause, NULL);
    }
    return false;
}

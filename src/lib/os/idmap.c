#include "lib/os/idmap.h"

#include <linux/sched.h>
#include <signal.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/os/pidfd.h"

int idmap_userns(const struct ns_map *uid, const struct ns_map *gid, int *ret, struct err *err)
{
    _cleanup_close_ int pidfd = -1;
    pid_t pid;
    int r;

    /* The child only keeps the namespace alive until we hold it by descriptor. */
    pid = ns_clone(CLONE_NEWUSER, -1, &pidfd);
    if (pid < 0)
        return err_sys(err, -pid, "make a user namespace for an id map");
    if (pid == 0) {
        pause();
        _exit(0);
    }
    r = ns_write_maps(pid, uid, gid, false, err);
    if (r == 0)
        r = ns_open_user(pid, ret, err);
    pidfd_signal(pidfd, SIGKILL);
    pidfd_reap(pidfd, true, NULL, NULL);
    return r;
}

#include <errno.h>
#include <linux/capability.h>
#include <sched.h>
#include <stdbool.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/os/caps.h"
#include "lib/os/mount.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"
#include "supervisor/shim/enter.h"
#include "supervisor/shim/own-proc.h"
#include "supervisor/shim/shim.h"

bool own_proc_is_needed(const struct shim *s)
{
    return s->masked_proc && s->plan.id_base && caps_have(CAP_SYS_ADMIN);
}

/* Sends the mount, or a packet without a descriptor whose contents are the errno. */
_noreturn_ static void own_proc_make(int sock)
{
    _cleanup_err_ struct err err = ERR_INIT;
    int fd = -1, r = mount_new("proc", NULL, MOUNT_SAFE | MOUNT_NOEXEC, &fd, &err);
    int errnum = r < 0 ? err.errnum : 0;

    fd_send(sock, &errnum, sizeof(errnum), &fd, fd >= 0, 0);
    _exit(0);
}

/* setns() changes the pid namespace of children only, so the mount is made by a child. */
_noreturn_ static void own_proc_help(const struct shim *s, int sock)
{
    int child = -1;

    if (enter_pids(s, NULL) < 0)
        _exit(1);
    if (ns_clone(0, -1, &child) == 0)
        own_proc_make(sock);
    if (child >= 0)
        pidfd_reap(child, true, NULL, NULL);
    _exit(0);
}

static int own_proc_receive(int sock, int *ret, struct err *err)
{
    int errnum = 0, fd = -1;
    size_t n = 1;
    ssize_t len = fd_recv(sock, &errnum, sizeof(errnum), &fd, &n, 0);

    if (len != sizeof(errnum) || (!errnum && fd < 0))
        return err_set(err, ERR_ENGINE, "the helper that mounts '/proc' ended without an answer");
    if (errnum)
        return err_sys(err, errnum, "mount '/proc' from outside of the sandbox");
    *ret = fd;
    return 0;
}

int own_proc_mount(const struct shim *s, int *ret, struct err *err)
{
    _cleanup_close_ int near = -1, pidfd = -1;
    int pair[2], r;
    pid_t pid;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "make a socket pair");
    near = pair[0];
    pid = ns_clone(0, -1, &pidfd);
    if (pid == 0)
        own_proc_help(s, pair[1]);
    fd_close(pair[1]); /* else we would wait for ever for a helper that died */
    if (pid < 0)
        return err_sys(err, -pid, "start a helper");
    r = own_proc_receive(near, ret, err);
    pidfd_reap(pidfd, true, NULL, NULL);
    return r;
}

#include "lib/os/ns.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/sched.h>
#include <net/if.h>
#include <signal.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/buf.h"
#include "lib/base/fd.h"

enum { NS_MAP_MAX = 4096 }; /* bytes: the kernel takes one page */

/*
 * The call before clone3. The default filter of Docker refuses clone3 without CAP_SYS_ADMIN,
 * because a filter cannot see its flags. It does not know groups, and takes the pidfd's place in
 * the argument for the parent's copy of the pid.
 */
static long ns_clone_old(const struct clone_args *args)
{
    uint64_t flags = args->flags | args->exit_signal;

    if (args->flags & CLONE_INTO_CGROUP)
        return -1;
    return syscall(SYS_clone, flags, NULL, (int *)(uintptr_t)args->pidfd, NULL, NULL);
}

pid_t ns_clone(uint64_t flags, int cgroup_fd, int *ret_pidfd)
{
    struct clone_args args = {.flags = flags};
    int pidfd = -1;
    long r;

    /* With CLONE_PARENT the kernel uses the exit signal of the caller and refuses any other. */
    if (!(flags & CLONE_PARENT))
        args.exit_signal = SIGCHLD;
    if (ret_pidfd) {
        args.flags |= CLONE_PIDFD;
        args.pidfd = (uintptr_t)&pidfd;
    }
    if (cgroup_fd >= 0) {
        args.flags |= CLONE_INTO_CGROUP;
        args.cgroup = (uint64_t)cgroup_fd;
    }
    r = syscall(SYS_clone3, &args, sizeof(args));
    if (r < 0 && errno == ENOSYS)
        r = ns_clone_old(&args);
    if (r < 0)
        return -errno;
    if (r > 0 && ret_pidfd)
        *ret_pidfd = pidfd;
    return (pid_t)r;
}

int ns_enter(int pidfd, int flags, struct err *err)
{
    if (syscall(SYS_setns, pidfd, flags) < 0)
        return err_sys(err, errno, "enter the sandbox's namespaces");
    return 0;
}

static int ns_write_proc(pid_t pid, const char *file, const char *text, struct err *err)
{
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/%s", (int)pid, file);
    return file_write(AT_FDCWD, path, text, err);
}

static int ns_write_map(pid_t pid, const char *file, const struct ns_map *m, struct err *err)
{
    _cleanup_buf_ struct buf text = BUF_INIT(NS_MAP_MAX);

    for (; m; m = m->next)
        if (buf_appendf(&text, "%u %u %u\n", m->inner, m->outer, m->count) < 0)
            return err_set(err, ERR_LIMIT, "%s exceeds %d bytes", file, NS_MAP_MAX);
    return ns_write_proc(pid, file, buf_data(&text), err);
}

int ns_write_maps(pid_t pid, const struct ns_map *uid, const struct ns_map *gid,
                  bool deny_setgroups, struct err *err)
{
    int r;

    /*
     * "deny" goes to setgroups before gid_map is written: without CAP_SETGID in the parent
     * namespace the kernel refuses the map otherwise (EPERM), so the order matters.
     */
    r = deny_setgroups ? ns_write_proc(pid, "setgroups", "deny", err) : 0;
    if (r < 0)
        return r;
    r = ns_write_map(pid, "uid_map", uid, err);
    if (r < 0)
        return r;
    return ns_write_map(pid, "gid_map", gid, err);
}

int ns_open_user(pid_t pid, int *ret, struct err *err)
{
    char path[64];
    int fd;

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    fd = open(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    *ret = fd;
    return 0;
}

int ns_loopback_up(struct err *err)
{
    _cleanup_close_ int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    struct ifreq req = {.ifr_name = "lo", .ifr_flags = IFF_UP | IFF_RUNNING};

    if (fd < 0)
        return err_sys(err, errno, "make a socket to bring up the loopback interface");
    if (ioctl(fd, SIOCSIFFLAGS, &req) < 0)
        return err_sys(err, errno, "bring up the loopback interface");
    return 0;
}

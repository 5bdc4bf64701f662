/*
 * A child enters the namespaces and never returns: with a rootless engine it must enter the
 * container's user namespace first, and a process cannot leave a user namespace. The child runs no
 * program and reads no file of the container; it only sends the socket.
 */
#include "supervisor/relay/packages-listener.h"

#include <errno.h>
#include <sched.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/os/listen.h"
#include "lib/os/ns.h"
#include "lib/os/pidfd.h"
#include "proto/supervisor.h"

enum { ANSWER_MAX = 8 << 10 };

static int packages_listener_namespaces(pid_t pid, int *ret, struct err *err)
{
    struct stat ours, theirs;
    char path[64];

    snprintf(path, sizeof(path), "/proc/%d/ns/user", (int)pid);
    if (stat("/proc/self/ns/user", &ours) < 0 || stat(path, &theirs) < 0)
        return err_sys(err, errno, "open the container's user namespace");
    *ret = CLONE_NEWNET | (ours.st_ino == theirs.st_ino ? 0 : CLONE_NEWUSER);
    return 0;
}

/* In the child: enters the namespaces, listens, sends the socket or the error, exits. */
_noreturn_ static void packages_listener_child(int pidfd, int flags, uint16_t port, int sock)
{
    _cleanup_err_ struct err err = ERR_INIT;
    struct sup_writer w;
    int fd = -1;

    if (ns_enter(pidfd, flags, &err) >= 0)
        (void)listen_inside(port, &fd, &err);
    sup_begin(&w, fd < 0 ? SUP_FAILED : SUP_READY, 0);
    if (fd < 0)
        sup_put_err(&w, &err);
    if (sup_finish(&w, NULL) >= 0)
        fd_send(sock, buf_data(&w.buf), w.buf.len, &fd, fd >= 0, 0);
    _exit(0);
}

static int packages_listener_receive(int sock, int *ret_fd, struct err *err)
{
    _Alignas(8) char packet[ANSWER_MAX];
    _cleanup_close_ int fd = -1;
    size_t n_fds = 1;
    ssize_t n = fd_recv(sock, packet, sizeof(packet), &fd, &n_fds, 0);

    if (n <= 0)
        return err_set(err, ERR_SYSTEM,
                       "the helper in the container's namespaces ended without an answer");
    if (n_fds == 0) {
        sup_read_err(packet, (size_t)n, err);
        return err->code ? -(int)err->code
                         : err_set(err, ERR_SYSTEM,
                                   "the helper in the container's namespaces sent no socket");
    }
    *ret_fd = TAKE_FD(fd);
    return 0;
}

static int packages_listener_run_child(int pidfd, int flags, uint16_t port, int *ret_fd,
                                       struct err *err)
{
    _cleanup_close_ int ours = -1, theirs = -1;
    int pair[2], r;
    pid_t child;

    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) < 0)
        return err_sys(err, errno, "make a socket pair");
    ours = pair[0];
    theirs = pair[1];
    child = fork();
    if (child < 0)
        return err_sys(err, errno, "fork");
    if (child == 0)
        packages_listener_child(pidfd, flags, port, theirs);
    theirs = fd_close(theirs); /* so that our end sees the child's exit */
    r = packages_listener_receive(ours, ret_fd, err);
    while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
        ;
    return r;
}

int packages_listener_open(const char *container, pid_t pid, uint16_t port, int *ret_fd,
                           struct err *err)
{
    _cleanup_close_ int pidfd = -1;
    int flags = 0, r;

    r = pidfd_open_pid(pid, &pidfd, err);
    if (r < 0)
        return r;
    if (!pidfd_in_cgroup(pidfd, pid, container))
        return err_set(err, ERR_ENGINE,
                       "process %d is not in the container on this machine (the engine reported "
                       "this pid)",
                       (int)pid);
    r = packages_listener_namespaces(pid, &flags, err);
    if (r < 0)
        return r;
    return packages_listener_run_child(pidfd, flags, port, ret_fd, err);
}

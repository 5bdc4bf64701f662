/*
 * The second filter of confined commands: what it says of each call, by the interpreter of bpf.h,
 * and a few calls in the kernel, with a reader that answers them.
 */
#include "lib/os/seccomp-confined.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/ioctl.h>
#include <sys/ipc.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/shm.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bpf.h"
#include "lib/base/fd.h"
#include "lib/base/macro.h"
#include "tap.h"

#define HIGH (0x123ULL << 32)
enum { NUMBERS = 1200, FASTOPEN = 0x20000000 };

static uint32_t verdict(bool same_user, int nr, uint64_t a0, uint64_t a1, uint64_t a2, uint64_t a3)
{
    struct seccomp_data d = {.nr = nr, .args = {a0, a1, a2, a3}};
    struct sock_filter f[SECCOMP_CONFINED_MAX];
    size_t n = seccomp_confined_compile(same_user, f);

    return bpf_run(f, n, &d);
}

static bool allowed(uint32_t v)
{
    return v == SECCOMP_RET_ALLOW;
}

static bool asked(uint32_t v)
{
    return v == SECCOMP_RET_USER_NOTIF;
}

static bool refused(uint32_t v, int errnum)
{
    return v == (SECCOMP_RET_ERRNO | (uint32_t)errnum);
}

TEST(only_tcp_and_only_by_the_reader)
{
    for (int same = 0; same < 2; same++) {
        for (int family = 0; family < 64; family++) {
            uint32_t v = verdict(same, SYS_socket, (uint64_t)family | HIGH, SOCK_STREAM, 0, 0);

            CHECK(family == AF_INET || family == AF_INET6 ? asked(v) : refused(v, EAFNOSUPPORT));
        }
        CHECK(allowed(verdict(same, SYS_socketpair, AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, 0)));
        CHECK(allowed(verdict(same, SYS_socketpair, AF_UNIX, SOCK_SEQPACKET | HIGH, 0, 0)));
        CHECK(refused(verdict(same, SYS_socketpair, AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0, 0),
                      EPROTONOSUPPORT));
        CHECK(refused(verdict(same, SYS_socketpair, AF_UNIX, SOCK_RAW | HIGH, 0, 0),
                      EPROTONOSUPPORT));
        CHECK(refused(verdict(same, SYS_socketpair, 30, SOCK_STREAM, 0, 0), EAFNOSUPPORT));
    }
}

TEST(no_unix_names)
{
    const uint64_t sizes[] = {sizeof(struct sockaddr_in), sizeof(struct sockaddr_in6), 128};

    for (uint64_t size = 0; size <= 200; size++) {
        bool internet = size == sizes[0] || size == sizes[1] || size == sizes[2];
        uint32_t v = verdict(false, SYS_bind, 3, 0, size | HIGH, 0);

        CHECK(internet ? allowed(v) : refused(v, EAFNOSUPPORT));
    }
}

TEST(no_connection_past_landlock)
{
    CHECK(refused(verdict(false, SYS_sendto, 3, 0, 0, FASTOPEN | MSG_DONTWAIT), EOPNOTSUPP));
    CHECK(refused(verdict(false, SYS_sendmsg, 3, 0, FASTOPEN, 0), EOPNOTSUPP));
    CHECK(refused(verdict(false, SYS_sendmmsg, 3, 0, 1, FASTOPEN | HIGH), EOPNOTSUPP));
    CHECK(allowed(verdict(false, SYS_sendto, FASTOPEN, FASTOPEN, FASTOPEN, MSG_NOSIGNAL)));
    CHECK(allowed(verdict(false, SYS_sendmsg, 3, 0, MSG_NOSIGNAL, FASTOPEN)));
    CHECK(refused(verdict(false, SYS_setsockopt, 3, IPPROTO_IP, 51, 0), EPERM));
    CHECK(allowed(verdict(false, SYS_setsockopt, 3, SOL_SOCKET, 51, 0)));
    CHECK(allowed(verdict(false, SYS_setsockopt, 3, IPPROTO_IP, 50, 0)));
}

TEST(nothing_shared_with_the_machine)
{
    static const int calls[] = {SYS_shmget, SYS_shmat,  SYS_shmctl, SYS_semget,  SYS_semop,
                                SYS_semctl, SYS_msgget, SYS_msgsnd, SYS_mq_open, SYS_mq_unlink};

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++)
        CHECK(refused(verdict(false, calls[i], 0, 0, 0, 0), ENOSYS));
}

TEST(no_settings_of_other_processes)
{
    static const int calls[] = {SYS_prlimit64, SYS_sched_setaffinity, SYS_sched_setscheduler,
                                SYS_sched_setparam, SYS_sched_setattr};

    for (size_t i = 0; i < ARRAY_SIZE(calls); i++) {
        CHECK(allowed(verdict(false, calls[i], 0, 5, 0, 0)));
        CHECK(allowed(verdict(false, calls[i], HIGH, 5, 0, 0)));
        CHECK(refused(verdict(false, calls[i], 1, 5, 0, 0), EPERM));
        CHECK(refused(verdict(false, calls[i], HIGH | 77, 5, 0, 0), EPERM));
    }
    CHECK(allowed(verdict(false, SYS_setpriority, PRIO_PROCESS, 0, 19, 0)));
    CHECK(refused(verdict(false, SYS_setpriority, PRIO_PROCESS, 5, 19, 0), EPERM));
    CHECK(refused(verdict(false, SYS_setpriority, PRIO_USER, 0, 19, 0), EPERM));
    CHECK(refused(verdict(false, SYS_setpriority, PRIO_PGRP, 0, 19, 0), EPERM));
    CHECK(refused(verdict(false, SYS_ioprio_set, 1, 0, 0, 0), EPERM));
    CHECK(refused(verdict(false, SYS_fcntl, 3, F_SETLEASE, F_RDLCK, 0), EPERM));
    CHECK(refused(verdict(false, SYS_fcntl, 3, F_NOTIFY, 1, 0), EPERM));
    CHECK(allowed(verdict(false, SYS_fcntl, F_SETLEASE, F_GETFL, 0, 0)));
}

TEST(modes_owners_and_times_only_where_the_user_is_shared)
{
    static const int reported[] = {
#ifdef SYS_chmod
        SYS_chmod,  SYS_chown,    SYS_lchown, SYS_utime,  SYS_utimes,   SYS_futimesat,
#endif
        SYS_fchmod, SYS_fchmodat, 452,        SYS_fchown, SYS_fchownat, SYS_utimensat};
    static const int attributes[] = {SYS_setxattr,     SYS_lsetxattr,
                                     SYS_fsetxattr,    463,
                                     SYS_removexattr,  SYS_lremovexattr,
                                     SYS_fremovexattr, 466,
                                     SYS_getxattr,     SYS_lgetxattr,
                                     SYS_listxattr,    464,
                                     SYS_llistxattr,   465};

    for (size_t i = 0; i < ARRAY_SIZE(reported); i++) {
        CHECK(asked(verdict(true, reported[i], 0, 0, 0, 0)));
        CHECK(allowed(verdict(false, reported[i], 0, 0, 0, 0)));
    }
    for (size_t i = 0; i < ARRAY_SIZE(attributes); i++) {
        CHECK(refused(verdict(true, attributes[i], 0, 0, 0, 0), EOPNOTSUPP));
        CHECK(allowed(verdict(false, attributes[i], 0, 0, 0, 0)));
    }
    CHECK(refused(verdict(true, SYS_ioctl, 3, FS_IOC_SETFLAGS, 0, 0), EPERM));
    CHECK(refused(verdict(true, SYS_ioctl, 3, FS_IOC_FSSETXATTR, 0, 0), EPERM));
    CHECK(allowed(verdict(true, SYS_ioctl, 3, FS_IOC_GETFLAGS, 0, 0)));
    CHECK(refused(verdict(true, SYS_inotify_add_watch, 3, 0, 0, 0), EACCES));
    CHECK(allowed(verdict(false, SYS_inotify_add_watch, 3, 0, 0, 0)));
}

/* It must add to the other filter, not replace it: nothing else has an opinion here. */
TEST(all_other_calls_are_left_to_the_other_filter)
{
    static const int touched[] = {
        SYS_socket, SYS_socketpair, SYS_shmget,  SYS_shmat,      SYS_shmdt,      SYS_shmctl,
        SYS_semget, SYS_semop,      SYS_semctl,  SYS_semtimedop, SYS_msgget,     SYS_msgsnd,
        SYS_msgrcv, SYS_msgctl,     SYS_mq_open, SYS_mq_unlink,  SYS_ioprio_set, SYS_bind};
    size_t others = 0;

    for (int nr = 0; nr < NUMBERS; nr++) {
        bool mine = false;

        for (size_t i = 0; i < ARRAY_SIZE(touched); i++)
            mine |= touched[i] == nr;
        others += !mine && !allowed(verdict(false, nr, 0, 0, 0, 0));
    }
    CHECK(others == 0);
}

/* ---- in the kernel ---- */

/* Answers one call: with errno `errnum`, or with a file of its own when that is 0. */
static bool answer(int listener, int errnum, int fd)
{
    struct seccomp_notif q = {0};
    struct seccomp_notif_resp r = {.error = -errnum};
    struct seccomp_notif_addfd add = {.flags = SECCOMP_ADDFD_FLAG_SEND};
    struct pollfd p = {.fd = listener, .events = POLLIN};

    if (poll(&p, 1, 10000) != 1 || ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &q) < 0 ||
        q.data.nr != SYS_socket)
        return false;
    r.id = add.id = q.id;
    add.srcfd = (unsigned)fd;
    if (errnum)
        return ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &r) == 0;
    return ioctl(listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add) >= 0;
}

static int confined(void)
{
    int pair[2];

    if (socket(AF_INET, SOCK_STREAM, 0) >= 0 || errno != EMFILE)
        return 1;
    if (socket(AF_INET6, SOCK_STREAM, 0) < 0)
        return 2;
    if (socket(AF_UNIX, SOCK_STREAM, 0) >= 0 || errno != EAFNOSUPPORT)
        return 3;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) < 0)
        return 4;
    if (socketpair(AF_UNIX, SOCK_DGRAM, 0, pair) == 0)
        return 5;
    if (shmget(IPC_PRIVATE, 4096, 0600) >= 0 || errno != ENOSYS)
        return 6;
    if (prlimit(getppid(), RLIMIT_CPU, NULL, NULL) == 0 || errno != EPERM)
        return 7;
    return prlimit(0, RLIMIT_CPU, NULL, NULL) == 0 ? 0 : 8;
}

TEST(the_kernel_agrees)
{
    int pair[2], status, listener = -1;
    size_t n = 1;
    char c = 'x';
    pid_t pid;

    CHECK(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0);
    pid = fork();
    if (pid == 0) {
        int mine;

        if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
            seccomp_confined_install(false, &mine, NULL) < 0)
            _exit(100);
        if (fd_send(pair[1], &c, 1, &mine, 1, 0) < 0)
            _exit(101);
        close(mine);
        _exit(confined());
    }
    fd_close(pair[1]);
    CHECK(fd_recv(pair[0], &c, 1, &listener, &n, 0) == 1 && listener >= 0);
    CHECK(answer(listener, EMFILE, -1) && answer(listener, 0, pair[0]));
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status));
    CHECK(WEXITSTATUS(status) == 0);
    fd_close(listener);
    fd_close(pair[0]);
}

static int second(void)
{
    _cleanup_err_ struct err err = ERR_INIT;
    int fd;

    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        seccomp_confined_install(false, &fd, &err) < 0)
        return 1;
    if (seccomp_confined_install(false, &fd, &err) != -ERR_UNSUPPORTED || !err.hint)
        return 2;
    return 0;
}

TEST(below_another_such_filter_it_is_unsupported)
{
    int status;
    pid_t pid = fork();

    if (pid == 0)
        _exit(second());
    CHECK(waitpid(pid, &status, 0) == pid && WIFEXITED(status) && WEXITSTATUS(status) == 0);
}

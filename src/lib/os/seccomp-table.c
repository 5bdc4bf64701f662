/*
 * The table allows the calls that compilers, interpreters, package managers, debuggers and servers
 * use. It refuses those that were ways out of sandboxes; a comment gives the reason.
 *
 * The headers of libc may be older than a call: the NEW macros take its number, which is the same
 * on all architectures since 424. Newer architectures lack the oldest calls: the OLD macros.
 */
#include "lib/os/seccomp-table.h"

#include <asm/ioctls.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/netlink.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <sys/personality.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include "lib/base/macro.h"

#ifndef SYS_uretprobe
#define SYS_uretprobe 335
#endif

#ifdef __x86_64__
#define OLD_NR(name) SYS_##name
#else
#define OLD_NR(name) (-1)
#endif

#define ENTRY(name, nr, ...)                                                                       \
    {                                                                                              \
#name, nr, __VA_ARGS__                                                                     \
    }
#define ALLOW(name) ENTRY(name, SYS_##name, CALL_ALLOW, 0, NULL)
#define ALLOW_NEW(name, nr) ENTRY(name, nr, CALL_ALLOW, 0, NULL)
#define ALLOW_OLD(name) ENTRY(name, OLD_NR(name), CALL_ALLOW, 0, NULL)
#define REFUSE(name, with) ENTRY(name, SYS_##name, CALL_REFUSE, with, NULL)
#define REFUSE_NEW(name, nr, with) ENTRY(name, nr, CALL_REFUSE, with, NULL)
#define REFUSE_OLD(name, with) ENTRY(name, OLD_NR(name), CALL_REFUSE, with, NULL)
#define BY(name, rule) ENTRY(name, SYS_##name, CALL_ARGS, 0, &(rule))
#define BY_NEW(name, nr, rule) ENTRY(name, nr, CALL_ARGS, 0, &(rule))
#define BY_OLD(name, rule) ENTRY(name, OLD_NR(name), CALL_ARGS, 0, &(rule))

/* clone(2) cannot take CLONE_NEWTIME: its bit is part of the exit signal there. */
static const struct seccomp_rule clone_rule = {
    .arg = 0,
    .test = CALL_NO_BITS,
    .errnum = EPERM,
    .values = {CLONE_NEWNS | CLONE_NEWCGROUP | CLONE_NEWUTS | CLONE_NEWIPC | CLONE_NEWUSER |
               CLONE_NEWPID | CLONE_NEWNET},
    .n = 1,
};

/* These ioctls type into a terminal that other processes read, paste into a console, or load a line
 * discipline, which is a driver that a sandbox does not need. */
static const struct seccomp_rule ioctl_rule = {
    .arg = 1,
    .test = CALL_NONE_OF,
    .errnum = EPERM,
    .values = {TIOCSTI, TIOCLINUX, TIOCSETD},
    .n = 3,
};

/* Queries, `setarch`, and the values that debuggers set for their children. */
static const struct seccomp_rule personality_rule = {
    .arg = 0,
    .test = CALL_ONE_OF,
    .errnum = EPERM,
    .values = {PER_LINUX, PER_LINUX32, UNAME26, PER_LINUX32 | UNAME26, ADDR_NO_RANDOMIZE,
               0xffffffff},
    .n = 6,
};

/*
 * Programs may add filters of their own, which end with their process. A filter with a listener
 * lives as long as the listener's descriptor: a few processes could fill the memory for compiled
 * filters (net.core.bpf_jit_limit of the whole machine), and no sandbox could start a command.
 */
static const struct seccomp_rule seccomp_rule = {
    .arg = 1,
    .test = CALL_NO_BITS,
    .errnum = EINVAL,
    .values = {SECCOMP_FILTER_FLAG_NEW_LISTENER},
    .n = 1,
};

static const struct seccomp_rule socketpair_rule = {
    .arg = 0, .test = CALL_ONE_OF, .errnum = EAFNOSUPPORT, .values = {AF_UNIX}, .n = 1};

/*
 * AF_ALG, AF_VSOCK, AF_PACKET and dozens of others are missing. Netlink is limited to addresses and
 * routes. The internet families are limited to common protocols: SCTP, DCCP, MPTCP and others are
 * large, rarely reviewed, and need no privilege. (Raw sockets need a capability.)
 */
static const struct seccomp_socket sockets[] = {
    {AF_UNIX, {0}, 0},
    {AF_INET, {0, IPPROTO_ICMP, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_RAW}, 5},
    {AF_INET6, {0, IPPROTO_TCP, IPPROTO_UDP, IPPROTO_ICMPV6, IPPROTO_RAW}, 5},
    {AF_NETLINK, {NETLINK_ROUTE}, 1},
};

/* clang-format off */
static const struct seccomp_call calls[] = {
    /* bytes */
    ALLOW(read), ALLOW(write), ALLOW(readv), ALLOW(writev), ALLOW(pread64), ALLOW(pwrite64), ALLOW(preadv), ALLOW(pwritev),
    ALLOW(preadv2), ALLOW(pwritev2), ALLOW(lseek), ALLOW(sendfile), ALLOW(copy_file_range), ALLOW(splice), ALLOW(tee),
    ALLOW(fadvise64), ALLOW(readahead), ALLOW(fallocate), ALLOW(ftruncate), ALLOW(truncate),
    ALLOW(sync), ALLOW(syncfs), ALLOW(fsync), ALLOW(fdatasync), ALLOW(sync_file_range),

    /* descriptors */
    ALLOW(close), ALLOW(close_range), ALLOW(dup), ALLOW_OLD(dup2), ALLOW(dup3), ALLOW(fcntl), ALLOW(flock), ALLOW_OLD(pipe), ALLOW(pipe2),
    ALLOW_OLD(poll), ALLOW(ppoll), ALLOW_OLD(select), ALLOW(pselect6),
    ALLOW_OLD(epoll_create), ALLOW(epoll_create1), ALLOW(epoll_ctl), ALLOW_OLD(epoll_wait), ALLOW(epoll_pwait), ALLOW(epoll_pwait2),
    ALLOW_OLD(eventfd), ALLOW(eventfd2), ALLOW_OLD(signalfd), ALLOW(signalfd4),
    ALLOW(timerfd_create), ALLOW(timerfd_settime), ALLOW(timerfd_gettime),
    ALLOW_OLD(inotify_init), ALLOW(inotify_init1), ALLOW(inotify_add_watch), ALLOW(inotify_rm_watch),
    ALLOW(memfd_create), ALLOW(memfd_secret), BY(ioctl, ioctl_rule),

    /* files */
    ALLOW_OLD(open), ALLOW_OLD(creat), ALLOW(openat), ALLOW(openat2), ALLOW_OLD(access), ALLOW(faccessat), ALLOW(faccessat2),
    ALLOW_OLD(stat), ALLOW_OLD(lstat), ALLOW(fstat), ALLOW(newfstatat), ALLOW(statx), ALLOW(statfs), ALLOW(fstatfs),
    ALLOW_OLD(getdents), ALLOW(getdents64), ALLOW(getcwd), ALLOW(chdir), ALLOW(fchdir), ALLOW(chroot), ALLOW(umask),
    ALLOW_OLD(mkdir), ALLOW(mkdirat), ALLOW_OLD(rmdir), ALLOW_OLD(unlink), ALLOW(unlinkat), ALLOW_OLD(rename), ALLOW(renameat), ALLOW(renameat2),
    ALLOW_OLD(link), ALLOW(linkat), ALLOW_OLD(symlink), ALLOW(symlinkat), ALLOW_OLD(readlink), ALLOW(readlinkat),
    ALLOW_OLD(mknod), ALLOW(mknodat), /* for FIFOs; devices need a capability that a sandbox lacks */
    ALLOW_OLD(chmod), ALLOW(fchmod), ALLOW(fchmodat), ALLOW_NEW(fchmodat2, 452),
    ALLOW_OLD(chown), ALLOW_OLD(lchown), ALLOW(fchown), ALLOW(fchownat),
    ALLOW_OLD(utime), ALLOW_OLD(utimes), ALLOW_OLD(futimesat), ALLOW(utimensat),
    ALLOW(getxattr), ALLOW(lgetxattr), ALLOW(fgetxattr), ALLOW(setxattr), ALLOW(lsetxattr), ALLOW(fsetxattr),
    ALLOW(listxattr), ALLOW(llistxattr), ALLOW(flistxattr), ALLOW(removexattr), ALLOW(lremovexattr), ALLOW(fremovexattr),
    ALLOW_NEW(setxattrat, 463), ALLOW_NEW(getxattrat, 464), ALLOW_NEW(listxattrat, 465), ALLOW_NEW(removexattrat, 466),

    /* memory */
    ALLOW(brk), ALLOW(mmap), ALLOW(munmap), ALLOW(mremap), ALLOW(mprotect), ALLOW(madvise), ALLOW(msync), ALLOW(mincore),
    ALLOW(mlock), ALLOW(mlock2), ALLOW(mlockall), ALLOW(munlock), ALLOW(munlockall), ALLOW(remap_file_pages), ALLOW_NEW(mseal, 462),
    ALLOW(pkey_alloc), ALLOW(pkey_free), ALLOW(pkey_mprotect), ALLOW_NEW(map_shadow_stack, 453),

    /* processes and threads */
    BY(clone, clone_rule), ALLOW_OLD(fork), ALLOW_OLD(vfork), ALLOW(execve), ALLOW(execveat), ALLOW(exit), ALLOW(exit_group),
    ALLOW(wait4), ALLOW(waitid), ALLOW(getpid), ALLOW(getppid), ALLOW(gettid), ALLOW(set_tid_address),
    ALLOW(setpgid), ALLOW(getpgid), ALLOW_OLD(getpgrp), ALLOW(setsid), ALLOW(getsid),
    ALLOW(pidfd_open), ALLOW(pidfd_send_signal), ALLOW(prctl), ALLOW_OLD(arch_prctl), BY(personality, personality_rule),
    ALLOW(futex), ALLOW(futex_waitv), ALLOW_NEW(futex_wake, 454), ALLOW_NEW(futex_wait, 455), ALLOW_NEW(futex_requeue, 456),
    ALLOW(set_robust_list), ALLOW(get_robust_list), ALLOW(rseq), ALLOW(membarrier), ALLOW(getcpu), ALLOW(restart_syscall),
    ALLOW_OLD(uretprobe), /* the kernel makes it in a process that the administrator traces */
    ALLOW(ptrace), ALLOW(process_vm_readv), ALLOW(process_vm_writev), /* debuggers; the pid namespace limits them to the sandbox */
    BY(seccomp, seccomp_rule), ALLOW(landlock_create_ruleset), ALLOW(landlock_add_rule), ALLOW(landlock_restrict_self),

    /* signals */
    ALLOW(kill), ALLOW(tkill), ALLOW(tgkill), ALLOW(rt_sigaction), ALLOW(rt_sigprocmask), ALLOW(rt_sigpending), ALLOW(rt_sigqueueinfo),
    ALLOW(rt_tgsigqueueinfo), ALLOW(rt_sigreturn), ALLOW(rt_sigsuspend), ALLOW(rt_sigtimedwait), ALLOW(sigaltstack), ALLOW_OLD(pause),

    /* user and group ids */
    ALLOW(getuid), ALLOW(geteuid), ALLOW(getgid), ALLOW(getegid), ALLOW(getresuid), ALLOW(getresgid), ALLOW(getgroups),
    ALLOW(setuid), ALLOW(setgid), ALLOW(setreuid), ALLOW(setregid), ALLOW(setresuid), ALLOW(setresgid), ALLOW(setgroups),
    ALLOW(setfsuid), ALLOW(setfsgid), ALLOW(capget), ALLOW(capset),

    /* time */
    ALLOW_OLD(time), ALLOW(gettimeofday), ALLOW(clock_gettime), ALLOW(clock_getres), ALLOW(clock_nanosleep), ALLOW(nanosleep), ALLOW(times),
    ALLOW_OLD(alarm), ALLOW(getitimer), ALLOW(setitimer),
    ALLOW(timer_create), ALLOW(timer_settime), ALLOW(timer_gettime), ALLOW(timer_getoverrun), ALLOW(timer_delete),

    /* the machine, limits, scheduling: the kernel checks the permissions */
    ALLOW(uname), ALLOW(sysinfo), ALLOW(getrandom), ALLOW(getrusage), ALLOW(getrlimit), ALLOW(setrlimit), ALLOW(prlimit64),
    ALLOW(getpriority), ALLOW(setpriority), ALLOW(ioprio_get), ALLOW(ioprio_set),
    ALLOW(sched_yield), ALLOW(sched_getaffinity), ALLOW(sched_setaffinity), ALLOW(sched_getparam), ALLOW(sched_setparam),
    ALLOW(sched_getscheduler), ALLOW(sched_setscheduler), ALLOW(sched_getattr), ALLOW(sched_setattr),
    ALLOW(sched_get_priority_max), ALLOW(sched_get_priority_min), ALLOW(sched_rr_get_interval),

    /* sockets */
    ENTRY(socket, SYS_socket, CALL_SOCKET, EAFNOSUPPORT, NULL), BY(socketpair, socketpair_rule),
    ALLOW(bind), ALLOW(listen), ALLOW(accept), ALLOW(accept4), ALLOW(connect), ALLOW(shutdown), ALLOW(getsockname), ALLOW(getpeername),
    ALLOW(getsockopt), ALLOW(setsockopt), ALLOW(sendto), ALLOW(recvfrom), ALLOW(sendmsg), ALLOW(recvmsg), ALLOW(sendmmsg), ALLOW(recvmmsg),

    /* System V and POSIX, in an ipc namespace of the sandbox's own */
    ALLOW(shmget), ALLOW(shmat), ALLOW(shmdt), ALLOW(shmctl), ALLOW(semget), ALLOW(semop), ALLOW(semtimedop), ALLOW(semctl),
    ALLOW(msgget), ALLOW(msgsnd), ALLOW(msgrcv), ALLOW(msgctl),
    ALLOW(mq_open), ALLOW(mq_unlink), ALLOW(mq_timedsend), ALLOW(mq_timedreceive), ALLOW(mq_notify), ALLOW(mq_getsetattr),

    /* namespaces and mounts: they open kernel code that was meant for root only. A filter cannot
     * see the flags of clone3(); libc uses clone() when clone3() does not exist. */
    REFUSE(clone3, ENOSYS), REFUSE(unshare, EPERM), REFUSE(setns, EPERM),
    REFUSE(mount, EPERM), REFUSE(umount2, EPERM), REFUSE(pivot_root, EPERM), REFUSE(fsopen, EPERM), REFUSE(fsconfig, EPERM),
    REFUSE(fsmount, EPERM), REFUSE(fspick, EPERM), REFUSE(open_tree, EPERM), REFUSE_NEW(open_tree_attr, 467, EPERM),
    REFUSE(move_mount, EPERM), REFUSE(mount_setattr, EPERM),

    /* opening files by handle bypasses all paths */
    REFUSE(name_to_handle_at, EPERM), REFUSE(open_by_handle_at, EPERM), REFUSE(fanotify_init, EPERM), REFUSE(fanotify_mark, EPERM),

    /* keyrings are per uid, not per sandbox */
    REFUSE(add_key, EPERM), REFUSE(request_key, EPERM), REFUSE(keyctl, EPERM),

    /* programs in the kernel, work that bypasses this filter, page faults held open, descriptors of
     * other processes. Programs check whether io_uring and AIO exist; all processes of the machine
     * share the contexts of AIO. */
    REFUSE(bpf, EPERM), REFUSE(perf_event_open, EPERM), REFUSE(userfaultfd, EPERM), REFUSE(kcmp, EPERM), REFUSE(pidfd_getfd, EPERM),
    REFUSE(process_madvise, EPERM), REFUSE(process_mrelease, EPERM), REFUSE(vmsplice, EPERM),
    REFUSE(io_uring_setup, ENOSYS), REFUSE(io_uring_enter, ENOSYS), REFUSE(io_uring_register, ENOSYS),
    REFUSE(io_setup, ENOSYS), REFUSE(io_submit, ENOSYS), REFUSE(io_getevents, ENOSYS), REFUSE(io_pgetevents, ENOSYS),
    REFUSE(io_cancel, ENOSYS), REFUSE(io_destroy, ENOSYS),

    /* whose pages lie where */
    REFUSE(mbind, EPERM), REFUSE(get_mempolicy, EPERM), REFUSE(set_mempolicy, EPERM), REFUSE(set_mempolicy_home_node, EPERM),
    REFUSE(migrate_pages, EPERM), REFUSE(move_pages, EPERM),

    /* administration of the machine */
    REFUSE(acct, EPERM), REFUSE(quotactl, EPERM), REFUSE(quotactl_fd, EPERM), REFUSE(swapon, EPERM), REFUSE(swapoff, EPERM),
    REFUSE(init_module, EPERM), REFUSE(finit_module, EPERM), REFUSE(delete_module, EPERM),
    REFUSE(kexec_load, EPERM), REFUSE(kexec_file_load, EPERM), REFUSE(reboot, EPERM), REFUSE(syslog, EPERM), REFUSE(vhangup, EPERM),
    REFUSE(settimeofday, EPERM), REFUSE(clock_settime, EPERM), REFUSE(clock_adjtime, EPERM), REFUSE(adjtimex, EPERM),
    REFUSE(sethostname, EPERM), REFUSE(setdomainname, EPERM),
    REFUSE_OLD(iopl, EPERM), REFUSE_OLD(ioperm, EPERM), REFUSE_OLD(modify_ldt, ENOSYS),
};
/* clang-format on */

/* ---- without set-id bits ---- */

#define SET_ID (S_ISUID | S_ISGID)
#define CREATES ((uint32_t)(O_CREAT | (O_TMPFILE & ~O_DIRECTORY)))

#define MODE_RULE(mode_arg, ...)                                                                   \
    {                                                                                              \
        .arg = mode_arg, .test = CALL_NO_BITS, .errnum = EPERM, .values = {SET_ID}, .n = 1,        \
        __VA_ARGS__                                                                                \
    }

/* The mode of a file, as the call's second or third argument. */
static const struct seccomp_rule mode_1_rule = MODE_RULE(1);
static const struct seccomp_rule mode_2_rule = MODE_RULE(2);

/* The kernel reads the mode only if the call may create a file. Otherwise libc does not set it. */
static const struct seccomp_rule open_rule = MODE_RULE(2, .if_arg = 1, .if_bits = CREATES);
static const struct seccomp_rule openat_rule = MODE_RULE(3, .if_arg = 2, .if_bits = CREATES);

/*
 * These entries replace those of the same name. A filter cannot see the mode of openat2(), which is
 * behind a pointer; programs fall back to openat(). The kernel ignores set-id bits in mkdir(). File
 * capabilities need CAP_SETFCAP, which no process inside has.
 */
static const struct seccomp_call no_set_id_calls[] = {
    BY_OLD(chmod, mode_1_rule), BY(fchmod, mode_1_rule),
    BY(fchmodat, mode_2_rule),  BY_NEW(fchmodat2, 452, mode_2_rule),
    BY_OLD(creat, mode_1_rule), BY_OLD(open, open_rule),
    BY(openat, openat_rule),    REFUSE(openat2, ENOSYS),
    BY_OLD(mknod, mode_1_rule), BY(mknodat, mode_2_rule),
};

static const struct seccomp_call *seccomp_table_without_set_id(const struct seccomp_call *c)
{
    for (size_t i = 0; i < ARRAY_SIZE(no_set_id_calls); i++)
        if (STREQ(no_set_id_calls[i].name, c->name))
            return &no_set_id_calls[i];
    return c;
}

const struct seccomp_call *seccomp_call_at(enum seccomp_variant variant, size_t i)
{
    if (i >= ARRAY_SIZE(calls))
        return NULL;
    return variant == SECCOMP_NO_SET_ID ? seccomp_table_without_set_id(&calls[i]) : &calls[i];
}

const struct seccomp_socket *seccomp_socket_at(size_t i)
{
    return i < ARRAY_SIZE(sockets) ? &sockets[i] : NULL;
}

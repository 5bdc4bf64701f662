#include "lib/os/confine.h"

#include <assert.h>
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/sched.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/macro.h"

/* Linux 6.6; the headers may be older. */
#ifndef SYS_fchmodat2
#define SYS_fchmodat2 452
#endif

#if defined(__x86_64__)
#define CONFINE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define CONFINE_ARCH AUDIT_ARCH_AARCH64
#endif

/* clang-format off */
static const int helper_calls[] = {
    /* bytes and descriptors */
    SYS_read, SYS_write, SYS_close, SYS_lseek, SYS_fcntl, SYS_sendmsg,
    /* trees */
    SYS_openat, SYS_openat2, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_getdents64, SYS_readlinkat, SYS_mkdirat,
    SYS_symlinkat, SYS_linkat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_fchmod, SYS_fchown, SYS_fchownat,
    SYS_ftruncate, SYS_utimensat,
    /* dialling */
    SYS_socket, SYS_connect, SYS_setsockopt,
    /* libc itself */
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_getrandom, SYS_clock_gettime,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_restart_syscall, SYS_exit, SYS_exit_group,
};

/* For confine_files_helper(), besides the list above. */
static const int files_calls[] = {
    SYS_flock, SYS_chdir, SYS_fchdir, SYS_fchmodat, SYS_fchmodat2, SYS_inotify_init1, SYS_inotify_add_watch, SYS_inotify_rm_watch,
    SYS_ppoll, SYS_pread64, SYS_pwrite64, SYS_geteuid, SYS_capget,
#ifdef SYS_poll
    SYS_poll,
#endif
};

/* For confine_network_program(): no call that listens, renames, makes folders or changes modes. */
static const int network_calls[] = {
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_close, SYS_lseek, SYS_fcntl, SYS_ioctl,
    SYS_dup, SYS_pipe2, SYS_eventfd2, SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
#ifdef SYS_poll
    SYS_poll, SYS_select, SYS_epoll_wait,
#endif
    /* its own folder, and files of /etc that libc and OpenSSL read */
    SYS_openat, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_faccessat, SYS_faccessat2, SYS_getdents64, SYS_readlinkat,
    SYS_unlinkat, SYS_ftruncate, SYS_flock,
#ifdef SYS_open
    SYS_open, SYS_stat, SYS_access, SYS_readlink,
#endif
    /* the network */
    SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_shutdown, SYS_getsockname, SYS_getpeername,
    SYS_getsockopt, SYS_setsockopt, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg,
    /* libc itself, and its threads (clone: see below) */
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_getrandom,
    SYS_clock_gettime, SYS_clock_nanosleep, SYS_nanosleep, SYS_gettimeofday, SYS_rt_sigaction, SYS_rt_sigprocmask,
    SYS_rt_sigreturn, SYS_sigaltstack, SYS_restart_syscall, SYS_exit, SYS_exit_group, SYS_sched_yield,
    SYS_sched_getaffinity, SYS_getpid, SYS_gettid, SYS_getuid, SYS_geteuid, SYS_getgid, SYS_getegid, SYS_uname,
    SYS_sysinfo, SYS_prctl, SYS_set_robust_list, SYS_membarrier, SYS_tgkill,
#ifdef SYS_rseq
    SYS_rseq,
#endif
};
/* clang-format on */

enum { CONFINE_CALLS_MAX = 240, N_FIXED = 16 };

#define STMT(code, k) ((struct sock_filter)BPF_STMT(code, k))
#define JUMP(code, k, yes, no) ((struct sock_filter)BPF_JUMP(code, k, yes, no))
#define LOAD(field) STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, field))

/*
 * Allows clone() for threads only. A filter cannot see the flags of clone3(), so it returns ENOSYS,
 * and libc uses clone() instead.
 */
static unsigned short os_confine_compile_threads(struct sock_filter *f)
{
    unsigned short n = 0;

    f[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone3, 0, 1);
    f[n++] = STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOSYS);
    f[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clone, 0, 4);
    f[n++] = LOAD(args[0]);
    f[n++] = JUMP(BPF_JMP | BPF_JSET | BPF_K, CLONE_THREAD, 0, 1);
    f[n++] = STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    f[n++] = STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    return n;
}

/* Other calls fail with EPERM and do not kill the process: a newer libc can fall back. */
static unsigned short os_confine_compile(struct sock_filter *f, const int *calls, size_t n_calls,
                                         bool threads)
{
    unsigned short n = 0;

    f[n++] = LOAD(arch);
    f[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, CONFINE_ARCH, 1, 0);
    f[n++] = STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    f[n++] = LOAD(nr);
    if (threads)
        n = (unsigned short)(n + os_confine_compile_threads(f + n));
    for (size_t i = 0; i < n_calls; i++) {
        /* jumps over the rest of the list and the refusal */
        unsigned char over = (unsigned char)(n_calls - i);

        f[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], over, 0);
    }
    f[n++] = STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    f[n++] = STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return n;
}

int confine_to(const int *calls, size_t n, bool threads, struct err *err)
{
    struct sock_filter filter[N_FIXED + CONFINE_CALLS_MAX];
    struct sock_fprog prog = {.filter = filter};

    assert(n <= CONFINE_CALLS_MAX);
    prog.len = os_confine_compile(filter, calls, n, threads);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0; /* sanitizers use calls that are not on the list */
#endif
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
        return err_sys(err, errno, "install the system call filter");
    return 0;
}

int confine_helper(struct err *err)
{
    return confine_to(helper_calls, ARRAY_SIZE(helper_calls), false, err);
}

int confine_files_helper(struct err *err)
{
    int calls[ARRAY_SIZE(helper_calls) + ARRAY_SIZE(files_calls)];

    memcpy(calls, helper_calls, sizeof(helper_calls));
    memcpy(calls + ARRAY_SIZE(helper_calls), files_calls, sizeof(files_calls));
    return confine_to(calls, ARRAY_SIZE(calls), false, err);
}

int confine_network_program(const int *more, size_t n, struct err *err)
{
    const struct rlimit none = {0, 0};
    int calls[CONFINE_CALLS_MAX];

    assert(ARRAY_SIZE(network_calls) + n <= CONFINE_CALLS_MAX);
    memcpy(calls, network_calls, sizeof(network_calls));
    if (n)
        memcpy(calls + ARRAY_SIZE(network_calls), more, n * sizeof(*more));
    if (setrlimit(RLIMIT_CORE, &none) < 0 || prctl(PR_SET_DUMPABLE, 0, 0, 0, 0) < 0)
        return err_sys(err, errno, "hide from debuggers");
    return confine_to(calls, ARRAY_SIZE(network_calls) + n, true, err);
}

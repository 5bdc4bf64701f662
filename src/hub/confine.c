#include "hub/confine.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/macro.h"
#include "os/caps.h"
#include "os/confine.h"

/* clang-format off */
/* Nothing that listens, renames, makes folders or changes modes. */
static const int allowed[] = {
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_close, SYS_lseek, SYS_fcntl, SYS_ioctl,
    SYS_dup, SYS_pipe2, SYS_eventfd2, SYS_ppoll, SYS_pselect6, SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait,
#ifdef SYS_poll
    SYS_poll, SYS_select, SYS_epoll_wait,
#endif
    /* the folder of downloads, and what libc and OpenSSL read of /etc */
    SYS_openat, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_faccessat, SYS_faccessat2, SYS_getdents64, SYS_readlinkat,
    SYS_unlinkat, SYS_ftruncate, SYS_flock,
#ifdef SYS_open
    SYS_open, SYS_stat, SYS_access, SYS_readlink,
#endif
    /* the network */
    SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_shutdown, SYS_getsockname, SYS_getpeername,
    SYS_getsockopt, SYS_setsockopt, SYS_sendto, SYS_sendmsg, SYS_sendmmsg, SYS_recvfrom, SYS_recvmsg, SYS_recvmmsg,
    /* libc itself, and its threads (clone: os/confine.c) */
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

int hub_become(const struct settings *s, int folder, struct err *err)
{
    if (!s->change_user) /* uid 0 of a user namespace has some, too */
        return caps_set(CAPS_NONE, err);
    if (folder >= 0 && fchown(folder, s->uid, s->uid) < 0)
        return err_sys(err, errno, "give the folder of downloads to user %u", s->uid);
    return caps_become(s->uid, s->uid, err);
}

int hub_confine(struct err *err)
{
    const struct rlimit none = {0, 0};

    setrlimit(RLIMIT_CORE, &none);
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    return confine_to(allowed, ARRAY_SIZE(allowed), true, err);
}

#include "registry/confine.h"

#include <errno.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "os/caps.h"
#include "os/confine.h"
#include "registry/config.h"

/* clang-format off */
static const int allowed[] = {
    /* bytes and descriptors */
    SYS_read, SYS_write, SYS_readv, SYS_writev, SYS_pread64, SYS_pwrite64, SYS_close, SYS_lseek, SYS_fcntl, SYS_ioctl,
    SYS_dup, SYS_dup3, SYS_pipe2, SYS_eventfd2, SYS_memfd_create,
    SYS_epoll_create1, SYS_epoll_ctl, SYS_epoll_pwait, SYS_ppoll, SYS_pselect6,
#ifdef SYS_epoll_wait
    SYS_epoll_wait, SYS_poll, SYS_select,
#endif
    /* our folder, and what libc and OpenSSL read of /etc */
    SYS_openat, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_faccessat, SYS_faccessat2, SYS_getdents64, SYS_readlinkat,
    SYS_mkdirat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_fchmod, SYS_fsync, SYS_fdatasync, SYS_ftruncate,
    SYS_utimensat, SYS_fsetxattr, SYS_fgetxattr, SYS_flock,
#ifdef SYS_open
    SYS_open, SYS_stat, SYS_access, SYS_readlink, SYS_rename,
#endif
    /* the network: never a listening socket of our own */
    SYS_socket, SYS_socketpair, SYS_connect, SYS_bind, SYS_accept4, SYS_shutdown, SYS_getsockname, SYS_getpeername,
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

int registry_become(const struct config *c, struct err *err)
{
    if (!c->change_user) /* uid 0 of a user namespace has some, too */
        return caps_set(CAPS_NONE, err);
    return caps_become(c->uid, c->gid, err);
}

int registry_confine(struct err *err)
{
    struct rlimit none = {0, 0}, files;

    setrlimit(RLIMIT_CORE, &none);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    prctl(PR_SET_DUMPABLE, 0, 0, 0, 0);
    return confine_to(allowed, sizeof(allowed) / sizeof(allowed[0]), true, err);
}

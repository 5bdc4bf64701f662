#include "os/confine.h"

#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define CONFINE_ARCH AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define CONFINE_ARCH AUDIT_ARCH_AARCH64
#endif

/* clang-format off */
static const int allowed[] = {
    /* bytes and descriptors */
    SYS_read, SYS_write, SYS_close, SYS_lseek, SYS_fcntl, SYS_sendmsg,
    /* trees */
    SYS_openat, SYS_openat2, SYS_fstat, SYS_newfstatat, SYS_statx, SYS_getdents64, SYS_readlinkat, SYS_mkdirat,
    SYS_symlinkat, SYS_linkat, SYS_unlinkat, SYS_renameat, SYS_renameat2, SYS_fchmod, SYS_utimensat,
    /* dialling */
    SYS_socket, SYS_connect, SYS_setsockopt,
    /* libc itself */
    SYS_mmap, SYS_munmap, SYS_mremap, SYS_mprotect, SYS_madvise, SYS_brk, SYS_futex, SYS_getrandom, SYS_clock_gettime,
    SYS_rt_sigaction, SYS_rt_sigprocmask, SYS_rt_sigreturn, SYS_restart_syscall, SYS_exit, SYS_exit_group,
};
/* clang-format on */

enum { N_ALLOWED = sizeof(allowed) / sizeof(allowed[0]), N_BEFORE = 4, N_AFTER = 2 };

/* Anything else is EPERM rather than death: a libc that tries something new then falls back. */
static unsigned short compile(struct sock_filter *f)
{
    unsigned short n = 0;

    f[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch));
    f[n++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, CONFINE_ARCH, 1, 0);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS);
    f[n++] =
        (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (int i = 0; i < N_ALLOWED; i++) {
        /* over the rest of the list and the refusal */
        unsigned char over = (unsigned char)(N_ALLOWED - i);

        f[n++] =
            (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)allowed[i], over, 0);
    }
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    f[n++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return n;
}

int confine_job(struct err *err)
{
    struct sock_filter filter[N_BEFORE + N_ALLOWED + N_AFTER];
    struct sock_fprog prog = {.len = compile(filter), .filter = filter};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return 0; /* their own calls are not on the list */
#endif
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) < 0 ||
        syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &prog) < 0)
        return err_sys(err, errno, "install the helper's system call filter");
    return 0;
}

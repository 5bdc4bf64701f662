/*
 * One block of instructions for each rule: "is it this call? do all conditions hold? then this
 * verdict". The rules of one call are tried in order; a call without a matching rule is allowed
 * here. Installation runs the filter for each call number and remembers those that it always
 * allows, so the length costs nothing later.
 */
#include "lib/os/seccomp-confined.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/fs.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "lib/base/macro.h"

#ifndef SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV
#define SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV (1UL << 5) /* linux 5.19 */
#endif
#ifndef MSG_FASTOPEN
#define MSG_FASTOPEN 0x20000000
#endif

enum {
    IP_LOCAL_PORT_RANGE_OPT = 51, /* linux 6.3 */
    SOCKET_TYPE_MASK = 0xf,       /* the rest of the argument is flags */
    CONDITIONS_MAX = 3,
    BLOCK_MAX = 10, /* instructions of one rule */
};

enum confined_test { IS, IS_NOT, HAS_BITS, TYPE_IS };

struct confined_condition {
    unsigned arg;
    enum confined_test test;
    uint32_t value;
};

struct confined_call {
    int nr;
    int errnum; /* 0: reported */
    struct confined_condition when[CONDITIONS_MAX];
    size_t n;
};

#define CALL(name, errnum, ...)                                                                    \
    {                                                                                              \
        SYS_##name, errnum, {__VA_ARGS__},                                                         \
            sizeof((struct confined_condition[]){__VA_ARGS__}) / sizeof(struct confined_condition) \
    }
#define NEVER(name, errnum)                                                                        \
    {                                                                                              \
        SYS_##name, errnum, {{0}}, 0                                                               \
    }
#define NEVER_NEW(nr, errnum)                                                                      \
    {                                                                                              \
        nr, errnum, {{0}}, 0                                                                       \
    }
#define ASK(name) NEVER(name, 0)
#define ASK_NEW(nr) NEVER_NEW(nr, 0)
/* Pid 0 is the caller itself. */
#define OTHERS(name) CALL(name, EPERM, {0, IS_NOT, 0})

/* clang-format off */
static const struct confined_call all_users[] = {
    /*
     * Sockets. Landlock up to ABI 7 does not see who connects to a socket with a path. A datagram
     * socket could send to any path, also one of a pair. UDP, ICMP and netlink pass every rule of
     * Landlock. MSG_FASTOPEN connects past it.
     */
    CALL(socket, 0, {0, IS, AF_INET}), CALL(socket, 0, {0, IS, AF_INET6}), NEVER(socket, EAFNOSUPPORT),
    CALL(socketpair, EAFNOSUPPORT, {0, IS_NOT, AF_UNIX}),
    CALL(socketpair, EPROTONOSUPPORT, {1, TYPE_IS, SOCK_DGRAM}), CALL(socketpair, EPROTONOSUPPORT, {1, TYPE_IS, SOCK_RAW}),
    CALL(sendto, EOPNOTSUPP, {3, HAS_BITS, MSG_FASTOPEN}), CALL(sendmsg, EOPNOTSUPP, {2, HAS_BITS, MSG_FASTOPEN}),
    CALL(sendmmsg, EOPNOTSUPP, {3, HAS_BITS, MSG_FASTOPEN}),
    /*
     * A socket of a pair could take a unix name: one that another program waits for, or that marks
     * a block of ports as taken. Addresses of IPv4 and IPv6 have the first two sizes, and programs
     * that take both use the third.
     */
    CALL(bind, EAFNOSUPPORT, {2, IS_NOT, sizeof(struct sockaddr_in)}, {2, IS_NOT, sizeof(struct sockaddr_in6)},
         {2, IS_NOT, sizeof(struct sockaddr_storage)}),
    /* the ports that port 0 chooses from: the sandbox's own */
    CALL(setsockopt, EPERM, {1, IS, IPPROTO_IP}, {2, IS, IP_LOCAL_PORT_RANGE_OPT}),

    /* of the whole machine or the whole container */
    NEVER(shmget, ENOSYS), NEVER(shmat, ENOSYS), NEVER(shmdt, ENOSYS), NEVER(shmctl, ENOSYS),
    NEVER(semget, ENOSYS), NEVER(semop, ENOSYS), NEVER(semtimedop, ENOSYS), NEVER(semctl, ENOSYS),
    NEVER(msgget, ENOSYS), NEVER(msgsnd, ENOSYS), NEVER(msgrcv, ENOSYS), NEVER(msgctl, ENOSYS),
    NEVER(mq_open, ENOSYS), NEVER(mq_unlink, ENOSYS),

    /* Settings of other processes with the same user, ours among them: Landlock does not see these
     * calls. A limit of processor time would end the process. */
    OTHERS(prlimit64), OTHERS(sched_setaffinity), OTHERS(sched_setscheduler), OTHERS(sched_setparam), OTHERS(sched_setattr),
    CALL(setpriority, EPERM, {0, IS_NOT, PRIO_PROCESS}), CALL(setpriority, EPERM, {1, IS_NOT, 0}), NEVER(ioprio_set, EPERM),

    /* a lease delays others that open the file, a notification reports them */
    CALL(fcntl, EPERM, {1, IS, F_SETLEASE}), CALL(fcntl, EPERM, {1, IS, F_NOTIFY}),
};

/* Landlock decides who opens a file, but not who changes its mode, owner and times, who reads and
 * changes its attributes, nor who watches a folder. The user id alone decides that, and it is not
 * the sandbox's own here. */
static const struct confined_call same_users[] = {
#ifdef SYS_chmod
    ASK(chmod), ASK(chown), ASK(lchown), ASK(utime), ASK(utimes), ASK(futimesat),
#endif
    ASK(fchmod), ASK(fchmodat), ASK_NEW(452 /* fchmodat2 */), ASK(fchown), ASK(fchownat), ASK(utimensat),
    NEVER(setxattr, EOPNOTSUPP), NEVER(lsetxattr, EOPNOTSUPP), NEVER(fsetxattr, EOPNOTSUPP), NEVER_NEW(463 /* setxattrat */, EOPNOTSUPP),
    NEVER(removexattr, EOPNOTSUPP), NEVER(lremovexattr, EOPNOTSUPP), NEVER(fremovexattr, EOPNOTSUPP),
    NEVER_NEW(466 /* removexattrat */, EOPNOTSUPP),
    NEVER(getxattr, EOPNOTSUPP), NEVER(lgetxattr, EOPNOTSUPP), NEVER_NEW(464 /* getxattrat */, EOPNOTSUPP),
    NEVER(listxattr, EOPNOTSUPP), NEVER(llistxattr, EOPNOTSUPP), NEVER_NEW(465 /* listxattrat */, EOPNOTSUPP),
    CALL(ioctl, EPERM, {1, IS, FS_IOC_SETFLAGS}), CALL(ioctl, EPERM, {1, IS, FS_IOC_FSSETXATTR}),
    NEVER(inotify_add_watch, EACCES),
};
/* clang-format on */

#define STMT(code, k) ((struct sock_filter)BPF_STMT(code, k))
#define JUMP(code, k, yes, no) ((struct sock_filter)BPF_JUMP(code, k, yes, no))
#define LOAD(at) STMT(BPF_LD | BPF_W | BPF_ABS, at)

/* The low word: both architectures are little-endian. */
static size_t seccomp_confined_put_condition(struct sock_filter *f,
                                             const struct confined_condition *c, size_t left)
{
    unsigned char out = (unsigned char)left; /* behind the block */
    size_t n = 0;

    f[n++] = LOAD((unsigned)(offsetof(struct seccomp_data, args) + c->arg * sizeof(__u64)));
    if (c->test == TYPE_IS)
        f[n++] = STMT(BPF_ALU | BPF_AND | BPF_K, SOCKET_TYPE_MASK);
    if (c->test == HAS_BITS)
        f[n++] = JUMP(BPF_JMP | BPF_JSET | BPF_K, c->value, 0, out);
    else if (c->test == IS_NOT)
        f[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, c->value, out, 0);
    else
        f[n++] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, c->value, 0, out);
    return n;
}

static size_t seccomp_confined_condition_size(const struct confined_condition *c)
{
    return c->test == TYPE_IS ? 3 : 2;
}

/* Ends with the call's number in the register again, for the next block. */
static size_t seccomp_confined_put_call(struct sock_filter *f, const struct confined_call *c)
{
    size_t size = 1, n = 1; /* the verdict; the comparison of the number comes first */

    for (size_t i = 0; i < c->n; i++)
        size += seccomp_confined_condition_size(&c->when[i]);
    assert(1 + size + 1 <= BLOCK_MAX);
    for (size_t i = 0; i < c->n; i++) {
        size -= seccomp_confined_condition_size(&c->when[i]);
        n += seccomp_confined_put_condition(f + n, &c->when[i], size);
    }
    f[n++] = STMT(BPF_RET | BPF_K,
                  c->errnum ? SECCOMP_RET_ERRNO | (unsigned)c->errnum : SECCOMP_RET_USER_NOTIF);
    f[0] = JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)c->nr, 0, (unsigned char)(n - 1));
    if (c->n)
        f[n++] = LOAD(offsetof(struct seccomp_data, nr));
    return n;
}

static size_t seccomp_confined_put_calls(struct sock_filter *f, size_t n,
                                         const struct confined_call *calls, size_t n_calls)
{
    for (size_t i = 0; i < n_calls; i++) {
        assert(n + BLOCK_MAX < SECCOMP_CONFINED_MAX);
        n += seccomp_confined_put_call(f + n, &calls[i]);
    }
    return n;
}

/* The other filter has ended calls of other architectures already. */
size_t seccomp_confined_compile(bool same_user, struct sock_filter f[static SECCOMP_CONFINED_MAX])
{
    size_t n = 0;

    f[n++] = LOAD(offsetof(struct seccomp_data, nr));
    n = seccomp_confined_put_calls(f, n, all_users, ARRAY_SIZE(all_users));
    if (same_user)
        n = seccomp_confined_put_calls(f, n, same_users, ARRAY_SIZE(same_users));
    f[n++] = STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    return n;
}

/* KILLABLE: a signal does not interrupt a call that the reader has taken; else the reader might
 * have done it already when the caller repeats it. */
int seccomp_confined_install(bool same_user, int *ret, struct err *err)
{
    struct sock_filter f[SECCOMP_CONFINED_MAX];
    const struct sock_fprog prog = {.len = (unsigned short)seccomp_confined_compile(same_user, f),
                                    .filter = f};

    *ret = (int)syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER,
                        SECCOMP_FILTER_FLAG_NEW_LISTENER | SECCOMP_FILTER_FLAG_WAIT_KILLABLE_RECV,
                        &prog);
    if (*ret >= 0)
        return 0;
    if (errno != EBUSY)
        return err_sys(err, errno, "install the filter of a confined command");
    err_set(err, ERR_UNSUPPORTED, "a filter that reports system calls is installed already");
    return err_hint(err, "Use a container without such a filter: the kernel allows only one.");
}

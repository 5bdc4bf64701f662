#include "supervisor/shim/broker.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/close_range.h>
#include <linux/seccomp.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdbool.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>
#include <utime.h>

#include "lib/base/fd.h"
#include "lib/base/guard.h"
#include "lib/base/strv.h"
#include "lib/os/confine.h"
#include "supervisor/shim/confined.h"
#include "supervisor/shim/shim.h"

#ifndef AT_EMPTY_PATH
#define AT_EMPTY_PATH 0x1000
#endif

enum {
    BROKER_FD = 3,
    IP_LOCAL_PORT_RANGE_OPT = 51, /* linux 6.3 */
    SOCKET_TYPE_MASK = 0xf,
    FCHMODAT2 = 452,
    PROC_PATH_MAX = 64,
};

struct broker {
    int listener;
    char *const *writable; /* real paths of the folders that the command may write to */
    uint32_t ports;        /* what port 0 chooses from: first | last << 16; 0: anything */
};

typedef struct seccomp_notif broker_call;

/* ---- sockets ---- */

/* Only the loopback interface: CAP_NET_RAW would be needed to bind it to another one. */
static int broker_prepare_socket(const struct broker *b, int fd)
{
    static const char lo[] = "lo";

    if (GUARD("loopback") && setsockopt(fd, SOL_SOCKET, SO_BINDTODEVICE, lo, sizeof(lo)) < 0)
        return -EACCES;
    if (b->ports) /* without it, port 0 gives a port that the command cannot connect to */
        setsockopt(fd, IPPROTO_IP, IP_LOCAL_PORT_RANGE_OPT, &b->ports, sizeof(b->ports));
    return 0;
}

/* The result of the call, or -errno. The kernel puts the socket into the command's table. */
static int broker_socket(const struct broker *b, const broker_call *q, bool *ret_sent)
{
    int family = (int)q->data.args[0], type = (int)q->data.args[1], protocol = (int)q->data.args[2];
    struct seccomp_notif_addfd add = {.id = q->id, .flags = SECCOMP_ADDFD_FLAG_SEND};
    _cleanup_close_ int fd = -1;
    int r;

    if ((type & SOCKET_TYPE_MASK) != SOCK_STREAM)
        return -EACCES;
    if (protocol != 0 && protocol != IPPROTO_TCP)
        return -EPROTONOSUPPORT;
    fd = socket(family, type | SOCK_CLOEXEC, protocol);
    if (fd < 0)
        return -errno;
    r = broker_prepare_socket(b, fd);
    if (r < 0)
        return r;
    add.srcfd = (unsigned)fd;
    add.newfd_flags = type & SOCK_CLOEXEC ? O_CLOEXEC : 0;
    r = ioctl(b->listener, SECCOMP_IOCTL_NOTIF_ADDFD, &add);
    *ret_sent = r >= 0;
    return r < 0 ? -errno : 0;
}

/* ---- files ---- */

/* What a call names: a descriptor, or a path that starts at a folder. */
struct broker_name {
    int dirfd;
    bool by_path;
    bool no_follow;
    char path[PATH_MAX];
};

/* Its arguments are at most two times, or a path. */
static int broker_read_memory(const broker_call *q, uint64_t at, void *ret, size_t len)
{
    struct iovec to = {ret, len}, from = {(void *)(uintptr_t)at, len};
    ssize_t n = process_vm_readv((pid_t)q->pid, &to, 1, &from, 1, 0);

    if (n < 0)
        return -errno;
    return (size_t)n == len ? 0 : -EFAULT;
}

/* Up to the end of a page at a time: the next one may not exist. */
static int broker_read_path(const broker_call *q, uint64_t at, char ret[static PATH_MAX])
{
    const size_t page = 4096;

    for (size_t have = 0; have < PATH_MAX;) {
        size_t n = MIN(page - (at + have) % page, PATH_MAX - have);
        int r = broker_read_memory(q, at + have, ret + have, n);

        if (r < 0)
            return r;
        if (memchr(ret + have, 0, n))
            return 0;
        have += n;
    }
    return -ENAMETOOLONG;
}

/* /proc/self of the command is not ours. */
static void broker_rename_self(const broker_call *q, struct broker_name *n)
{
    static const char *const selves[] = {"/proc/self/", "/proc/thread-self/"};
    char rest[PATH_MAX];

    for (size_t i = 0; i < ARRAY_SIZE(selves); i++) {
        size_t len = strlen(selves[i]);

        if (strncmp(n->path, selves[i], len) != 0)
            continue;
        snprintf(rest, sizeof(rest), "%s", n->path + len);
        snprintf(n->path, sizeof(n->path), "/proc/%u/%.*s", q->pid, PATH_MAX - PROC_PATH_MAX, rest);
        return;
    }
}

static int broker_open_dirfd(const broker_call *q, int dirfd, int *ret)
{
    char path[PROC_PATH_MAX];

    if (dirfd == AT_FDCWD)
        snprintf(path, sizeof(path), "/proc/%u/cwd", q->pid);
    else
        snprintf(path, sizeof(path), "/proc/%u/fd/%d", q->pid, dirfd);
    *ret = open(path, O_PATH | O_CLOEXEC);
    if (*ret >= 0)
        return 0;
    return errno == ENOENT ? -EBADF : -errno;
}

/* Finds the file with our own rights. What is found counts, not how. */
static int broker_open(const broker_call *q, struct broker_name *n, int *ret)
{
    int flags = O_PATH | O_CLOEXEC | (n->no_follow ? O_NOFOLLOW : 0), r;
    _cleanup_close_ int from = -1;

    if (n->by_path && n->path[0] == '/') {
        broker_rename_self(q, n);
        *ret = open(n->path, flags);
        return *ret < 0 ? -errno : 0;
    }
    r = broker_open_dirfd(q, n->dirfd, &from);
    if (r < 0)
        return r;
    *ret = n->by_path ? openat(from, n->path, flags) : TAKE_FD(from);
    return *ret < 0 ? -errno : 0;
}

/* The path that the kernel shows for an open file begins with one of the folders. Nothing outside
 * gets such a path: Landlock lets no file be moved or linked into them. */
static bool broker_is_writable(const struct broker *b, int fd, bool by_path)
{
    char link[PROC_PATH_MAX], real[PATH_MAX];
    ssize_t n;

    snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
    n = readlink(link, real, sizeof(real) - 1);
    if (n < 0)
        return false;
    real[n] = '\0';
    if (real[0] != '/') /* a pipe or a socket; a path to one may lead to those of other processes */
        return !by_path;
    for (char *const *w = b->writable; w && *w; w++) {
        size_t len = strlen(*w);

        if (strncmp(real, *w, len) == 0 && (!real[len] || real[len] == '/'))
            return true;
    }
    return false;
}

/* After everything was read: the process may have ended, and its pid may be that of another. */
static bool broker_still_waits(const struct broker *b, const broker_call *q)
{
    uint64_t id = q->id;

    return ioctl(b->listener, SECCOMP_IOCTL_NOTIF_ID_VALID, &id) == 0;
}

static int broker_find(const struct broker *b, const broker_call *q, struct broker_name *n,
                       int *ret)
{
    int r = broker_open(q, n, ret);

    if (r < 0)
        return r;
    if (!broker_still_waits(b, q))
        return -ESRCH;
    return broker_is_writable(b, *ret, n->by_path) || !GUARD("own files") ? 0 : -EACCES;
}

/* ---- times ---- */

enum broker_times { TIMES_NONE, TIMES_SPEC, TIMES_VAL, TIMES_BUF };

static void broker_times_from_val(const struct timeval v[2], struct timespec ret[2])
{
    for (int i = 0; i < 2; i++)
        ret[i] = (struct timespec){v[i].tv_sec, v[i].tv_usec * 1000};
}

static int broker_read_times(const broker_call *q, uint64_t at, enum broker_times form,
                             struct timespec ret[2])
{
    struct timeval val[2];
    struct utimbuf buf;
    int r;

    if (form == TIMES_SPEC)
        return broker_read_memory(q, at, ret, 2 * sizeof(*ret));
    if (form == TIMES_VAL) {
        r = broker_read_memory(q, at, val, sizeof(val));
        if (r >= 0)
            broker_times_from_val(val, ret);
        return r;
    }
    r = broker_read_memory(q, at, &buf, sizeof(buf));
    ret[0] = (struct timespec){buf.actime, 0};
    ret[1] = (struct timespec){buf.modtime, 0};
    return r;
}

/* ---- the calls ---- */

enum broker_change { CHANGE_MODE, CHANGE_OWNER, CHANGE_TIMES };

#define NO_ARG 6

/* The arguments of each call by their number. */
struct broker_form {
    int nr;
    enum broker_change change;
    unsigned dirfd, path; /* NO_ARG: AT_FDCWD; the descriptor itself */
    unsigned value;       /* mode, owner (then the group), times */
    unsigned flags;       /* AT_* */
    bool no_follow;       /* always */
    enum broker_times form;
};

/* clang-format off */
static const struct broker_form broker_forms[] = {
#ifdef SYS_chmod
    {SYS_chmod,     CHANGE_MODE,  NO_ARG, 0,      1, NO_ARG, false, TIMES_NONE},
    {SYS_chown,     CHANGE_OWNER, NO_ARG, 0,      1, NO_ARG, false, TIMES_NONE},
    {SYS_lchown,    CHANGE_OWNER, NO_ARG, 0,      1, NO_ARG, true,  TIMES_NONE},
    {SYS_utime,     CHANGE_TIMES, NO_ARG, 0,      1, NO_ARG, false, TIMES_BUF},
    {SYS_utimes,    CHANGE_TIMES, NO_ARG, 0,      1, NO_ARG, false, TIMES_VAL},
    {SYS_futimesat, CHANGE_TIMES, 0,      1,      2, NO_ARG, false, TIMES_VAL},
#endif
    {SYS_fchmod,    CHANGE_MODE,  0,      NO_ARG, 1, NO_ARG, false, TIMES_NONE},
    {SYS_fchmodat,  CHANGE_MODE,  0,      1,      2, NO_ARG, false, TIMES_NONE},
    {FCHMODAT2,     CHANGE_MODE,  0,      1,      2, 3,      false, TIMES_NONE},
    {SYS_fchown,    CHANGE_OWNER, 0,      NO_ARG, 1, NO_ARG, false, TIMES_NONE},
    {SYS_fchownat,  CHANGE_OWNER, 0,      1,      2, 4,      false, TIMES_NONE},
    {SYS_utimensat, CHANGE_TIMES, 0,      1,      2, 3,      false, TIMES_SPEC},
};
/* clang-format on */

static uint64_t broker_arg(const broker_call *q, unsigned i)
{
    return i == NO_ARG ? 0 : q->data.args[i];
}

/* utimensat() without a path, and an empty path with the flag for it, mean the descriptor. */
static int broker_read_name(const broker_call *q, const struct broker_form *f,
                            struct broker_name *ret)
{
    uint64_t flags = broker_arg(q, f->flags), path = broker_arg(q, f->path);
    int r;

    ret->dirfd = f->dirfd == NO_ARG ? AT_FDCWD : (int)q->data.args[f->dirfd];
    ret->no_follow = f->no_follow || flags & AT_SYMLINK_NOFOLLOW;
    ret->by_path = f->path != NO_ARG && !(f->change == CHANGE_TIMES && !path);
    if (flags & ~(uint64_t)(AT_SYMLINK_NOFOLLOW | AT_EMPTY_PATH))
        return -EINVAL;
    if (!ret->by_path)
        return ret->dirfd == AT_FDCWD ? -EFAULT : 0;
    r = broker_read_path(q, path, ret->path);
    if (r < 0 || ret->path[0])
        return r;
    ret->by_path = false;
    return flags & AT_EMPTY_PATH ? 0 : -ENOENT;
}

static int broker_change(const struct broker *b, const broker_call *q, const struct broker_form *f,
                         int fd)
{
    uint64_t value = broker_arg(q, f->value);
    struct timespec times[2];
    char path[PROC_PATH_MAX];
    int r = 0;

    snprintf(path, sizeof(path), "/proc/self/fd/%d", fd);
    switch (f->change) {
    case CHANGE_MODE:
        if (value & (S_ISUID | S_ISGID))
            return -EPERM;
        r = chmod(path, (mode_t)value & 07777);
        break;
    case CHANGE_OWNER:
        r = fchownat(fd, "", (uid_t)value, (gid_t)q->data.args[f->value + 1], AT_EMPTY_PATH);
        break;
    case CHANGE_TIMES:
        r = value ? broker_read_times(q, value, f->form, times) : 0;
        if (r < 0)
            return r;
        if (!broker_still_waits(b, q))
            return -ESRCH;
        r = utimensat(AT_FDCWD, path, value ? times : NULL, 0);
        break;
    }
    return r < 0 ? -errno : 0;
}

static int broker_file(const struct broker *b, const broker_call *q, const struct broker_form *f)
{
    _cleanup_close_ int fd = -1;
    struct broker_name name;
    int r = broker_read_name(q, f, &name);

    if (r < 0)
        return r;
    r = broker_find(b, q, &name, &fd);
    return r < 0 ? r : broker_change(b, q, f, fd);
}

static int broker_do(const struct broker *b, const broker_call *q, bool *ret_sent)
{
    if (q->data.nr == SYS_socket)
        return broker_socket(b, q, ret_sent);
    for (size_t i = 0; i < ARRAY_SIZE(broker_forms); i++)
        if (broker_forms[i].nr == q->data.nr)
            return broker_file(b, q, &broker_forms[i]);
    return -ENOSYS;
}

/* ---- the process ---- */

static void broker_serve(const struct broker *b)
{
    struct seccomp_notif_resp answer;
    bool sent = false;
    broker_call q;

    memset(&q, 0, sizeof(q)); /* the kernel wants it */
    if (ioctl(b->listener, SECCOMP_IOCTL_NOTIF_RECV, &q) < 0)
        return; /* the caller was killed */
    answer = (struct seccomp_notif_resp){.id = q.id, .error = broker_do(b, &q, &sent)};
    if (!sent)
        ioctl(b->listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
}

static int broker_confine(void)
{
    static const int calls[] = {
        SYS_ppoll,
        SYS_ioctl,
        SYS_socket,
        SYS_setsockopt,
        SYS_close,
        SYS_openat,
        SYS_readlinkat,
        SYS_fchmodat,
        SYS_fchownat,
        SYS_utimensat,
        SYS_exit,
        SYS_exit_group,
        SYS_brk,
        SYS_mmap,
        SYS_munmap,
        SYS_madvise,
        SYS_rt_sigreturn,
        SYS_process_vm_readv,
        SYS_restart_syscall,
#ifdef SYS_poll
        SYS_poll,
        SYS_open,
        SYS_readlink,
        SYS_chmod,
#endif
    };

    return confine_to(calls, ARRAY_SIZE(calls), false, NULL);
}

static bool broker_take_listener(int sock, struct broker *ret)
{
    size_t n = 1;
    char byte;

    ret->listener = -1;
    return fd_recv(sock, &byte, 1, &ret->listener, &n, 0) == 1 && n == 1;
}

static uint32_t broker_ports(const struct plan *p)
{
    return p->n_ports ? p->ports[0].first | (uint32_t)p->ports[0].last << 16 : 0;
}

/* Closes the socket's other end, among all others, so that it ends if no listener ever comes. */
_noreturn_ void broker_main(const struct shim *s, int sock)
{
    struct broker b = {.writable = s->confined->writable, .ports = broker_ports(&s->plan)};
    struct pollfd p;

    prctl(PR_SET_NAME, "ripcord-broker", 0, 0, 0);
    if ((sock != BROKER_FD && dup3(sock, BROKER_FD, O_CLOEXEC) < 0) ||
        syscall(SYS_close_range, BROKER_FD + 1U, ~0U, 0) < 0 ||
        !broker_take_listener(BROKER_FD, &b))
        _exit(0);
    close(BROKER_FD);
    if (broker_confine() < 0)
        _exit(1);
    do {
        p = (struct pollfd){.fd = b.listener, .events = POLLIN};
        if (poll(&p, 1, -1) > 0 && p.revents & POLLIN)
            broker_serve(&b);
    } while (!p.revents || p.revents & POLLIN);
    _exit(0);
}

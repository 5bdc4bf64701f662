#include "lib/base/fd.h"

#include <fcntl.h>
#include <limits.h>
#include <linux/openat2.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/un.h>

#include "lib/base/xalloc.h"

int fd_write_all(int fd, const void *data, size_t len)
{
    const char *p = data;

    while (len) {
        ssize_t n = write(fd, p, len);

        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        p += n;
        len -= (size_t)n;
    }
    return 0;
}

ssize_t fd_read_full(int fd, void *data, size_t len)
{
    size_t got = 0;

    while (got < len) {
        ssize_t n = read(fd, (char *)data + got, len - got);

        if (n < 0) {
            if (errno == EINTR)
                continue;
            return -errno;
        }
        if (n == 0)
            break;
        got += (size_t)n;
    }
    return (ssize_t)got;
}

int fd_set_nonblock(int fd, bool on)
{
    int flags = fcntl(fd, F_GETFL);

    if (flags < 0)
        return -errno;
    flags = on ? flags | O_NONBLOCK : flags & ~O_NONBLOCK;
    return fcntl(fd, F_SETFL, flags) < 0 ? -errno : 0;
}

int file_read(int dirfd, const char *path, size_t max, char **ret, size_t *ret_len, struct err *err)
{
    _cleanup_close_ int fd = -1;
    _cleanup_free_ char *text = NULL;
    size_t cap = 4096, len = 0;

    fd = openat(dirfd, path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open '%s'", path);
    for (;;) {
        ssize_t n;

        text = xrealloc(text, cap + 1);
        n = fd_read_full(fd, text + len, cap - len);
        if (n < 0)
            return err_sys(err, (int)-n, "read '%s'", path);
        len += (size_t)n;
        if (len > max)
            return err_set(err, ERR_LIMIT, "'%s' is larger than %zu bytes", path, max);
        if (len < cap)
            break;
        cap *= 2;
    }
    text[len] = '\0';
    *ret = TAKE_PTR(text);
    if (ret_len)
        *ret_len = len;
    return 0;
}

int file_write(int dirfd, const char *path, const char *text, struct err *err)
{
    _cleanup_close_ int fd = openat(dirfd, path, O_WRONLY | O_CLOEXEC);
    size_t len = strlen(text);
    ssize_t n;

    if (fd < 0)
        return err_sys(err, errno, "open '%s' for writing", path);
    n = write(fd, text, len);
    if (n < 0)
        return err_sys(err, errno, "write '%.40s' to '%s'", text, path);
    if ((size_t)n != len)
        return err_set(err, ERR_SYSTEM, "short write to '%s'", path);
    return 0;
}

static int fd_replace_by(int dirfd, const char *tmp, const char *path, const void *data, size_t len,
                         mode_t mode, bool sync, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    fd = openat(dirfd, tmp, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, mode);
    if (fd < 0)
        return err_sys(err, errno, "create '%s'", tmp);
    r = fd_write_all(fd, data, len);
    if (r < 0) {
        unlinkat(dirfd, tmp, 0);
        return err_sys(err, -r, "write '%s'", tmp);
    }
    if (sync && fsync(fd) < 0) {
        r = errno;
        unlinkat(dirfd, tmp, 0);
        return err_sys(err, r, "sync '%s'", tmp);
    }
    if (renameat(dirfd, tmp, dirfd, path) < 0) {
        r = errno;
        unlinkat(dirfd, tmp, 0);
        return err_sys(err, r, "rename '%s' to '%s'", tmp, path);
    }
    return 0;
}

int file_replace(int dirfd, const char *path, const void *data, size_t len, mode_t mode, bool sync,
                 struct err *err)
{
    _cleanup_free_ char *tmp = xasprintf("%s.tmp", path);

    return fd_replace_by(dirfd, tmp, path, data, len, mode, sync, err);
}

int file_replace_shared(int dirfd, const char *path, const void *data, size_t len, mode_t mode,
                        struct err *err)
{
    _cleanup_free_ char *tmp = xasprintf("%s.%d.tmp", path, (int)getpid());

    return fd_replace_by(dirfd, tmp, path, data, len, mode, false, err);
}

int memfd_sealed(const char *name, const void *data, size_t len, int *ret, struct err *err)
{
    _cleanup_close_ int fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING);
    int r;

    if (fd < 0)
        return err_sys(err, errno, "make memfd '%s'", name);
    r = fd_write_all(fd, data, len);
    if (r < 0)
        return err_sys(err, -r, "write memfd '%s'", name);
    if (lseek(fd, 0, SEEK_SET) < 0 ||
        fcntl(fd, F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) < 0)
        return err_sys(err, errno, "seal memfd '%s'", name);
    *ret = TAKE_FD(fd);
    return 0;
}

int dir_make_all(int dirfd, const char *path, mode_t mode, struct err *err)
{
    _cleanup_free_ char *p = xstrdup(path);

    for (char *s = p + (*p == '/'); *s; s++) {
        if (*s != '/')
            continue;
        *s = '\0';
        if (mkdirat(dirfd, p, mode) < 0 && errno != EEXIST)
            return err_sys(err, errno, "make folder '%s'", p);
        *s = '/';
    }
    if (mkdirat(dirfd, p, mode) < 0 && errno != EEXIST)
        return err_sys(err, errno, "make folder '%s'", p);
    return 0;
}

unsigned fd_left(unsigned *ret_limit)
{
    struct rlimit files = {0};
    int lowest = fcntl(STDERR_FILENO, F_DUPFD_CLOEXEC, 0);

    if (getrlimit(RLIMIT_NOFILE, &files) < 0 || lowest < 0) {
        *ret_limit = (unsigned)files.rlim_cur;
        return 0;
    }
    close(lowest);
    *ret_limit = (unsigned)MIN(files.rlim_cur, (rlim_t)INT_MAX);
    return *ret_limit > (unsigned)lowest ? *ret_limit - (unsigned)lowest : 0;
}

int dir_open(int dirfd, const char *path, int *ret, struct err *err)
{
    int fd = openat(dirfd, path, O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW);

    if (fd < 0)
        return err_sys(err, errno, "open folder '%s'", path);
    *ret = fd;
    return 0;
}

/* One component after the other: O_NOFOLLOW counts for the last one only. */
static int fd_walk_beneath(int dirfd, const char *path, int flags)
{
    _cleanup_close_ int at = openat(dirfd, ".", O_PATH | O_DIRECTORY | O_CLOEXEC);

    while (at >= 0) {
        size_t len = strcspn(path, "/"), end = len + strspn(path + len, "/");
        _cleanup_free_ char *name = xstrndup(path, len);
        bool last = path[end] == '\0';
        int next;

        if (len == 0 || STREQ(name, "..")) {
            errno = EXDEV;
            return -1;
        }
        next = openat(at, name,
                      last ? flags | O_NOFOLLOW : O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
        if (last)
            return next;
        fd_close(at);
        at = next;
        path += end;
    }
    return -1;
}

int fd_open_resolved(int dirfd, const char *path, int flags, mode_t mode, uint64_t resolve)
{
    struct open_how how = {
        .flags = (uint64_t)(flags | O_CLOEXEC), .mode = mode, .resolve = resolve};
    int fd = (int)syscall(SYS_openat2, dirfd, path, &how, sizeof(how));

    if (fd >= 0 || errno != ENOSYS)
        return fd;
    if (resolve & RESOLVE_BENEATH)
        return fd_walk_beneath(dirfd, path, flags | O_CLOEXEC);
    return openat(dirfd, path, flags | O_CLOEXEC, mode);
}

int fd_open_beneath(int dirfd, const char *path, int flags)
{
    return fd_open_resolved(dirfd, path, flags, 0,
                            RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS);
}

int dir_open_above(const char *path, int *ret, const char **ret_name, struct err *err)
{
    const char *slash = strrchr(path, '/');
    _cleanup_free_ char *folder = NULL;
    int fd;

    if (!slash)
        return err_set(err, ERR_INVALID, "'%.200s' does not name a folder (no '/')", path);
    folder = xstrndup(path, (size_t)(slash - path) + 1);
    fd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return err_sys(err, errno, "open folder '%s'", folder);
    *ret = fd;
    *ret_name = slash + 1;
    return 0;
}

static int fd_unix_address(int dirfd, const char *name, struct sockaddr_un *ret, struct err *err)
{
    int n;

    *ret = (struct sockaddr_un){.sun_family = AF_UNIX};
    n = snprintf(ret->sun_path, sizeof(ret->sun_path), "/proc/self/fd/%d/%s", dirfd, name);
    if (n < 0 || (size_t)n >= sizeof(ret->sun_path))
        return err_set(err, ERR_INVALID, "socket name '%s' is too long", name);
    return 0;
}

int unix_listen(int dirfd, const char *name, int type, mode_t mode, int *ret, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct sockaddr_un addr;
    int r;

    r = fd_unix_address(dirfd, name, &addr, err);
    if (r < 0)
        return r;
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, errno, "make socket '%s'", name);
    if (unlinkat(dirfd, name, 0) < 0 && errno != ENOENT)
        return err_sys(err, errno, "remove old socket '%s'", name);
    /* bind() takes the mode of the socket, so other users never see a wider mode. Changing the
     * umask instead would affect all threads: a folder made meanwhile would lack x.
     */
    if (fchmod(fd, mode) < 0)
        return err_sys(err, errno, "set mode of socket '%s'", name);
    if (bind(fd, (struct sockaddr *)&addr, sizeof(addr)) < 0)
        return err_sys(err, errno, "bind socket '%s'", name);
    if (fchmodat(dirfd, name, mode, 0) < 0) /* what the umask took */
        return err_sys(err, errno, "set mode of socket '%s'", name);
    if (listen(fd, SOMAXCONN) < 0)
        return err_sys(err, errno, "listen on socket '%s'", name);
    *ret = TAKE_FD(fd);
    return 0;
}

int unix_connect(int dirfd, const char *name, int type, int *ret, struct err *err)
{
    _cleanup_close_ int fd = -1;
    struct sockaddr_un addr;
    int r;

    r = fd_unix_address(dirfd, name, &addr, err);
    if (r < 0)
        return r;
    fd = socket(AF_UNIX, type | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return err_sys(err, errno, "make socket");
    do
        r = connect(fd, (struct sockaddr *)&addr, sizeof(addr));
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return err_sys(err, errno, "connect to socket '%s'", name);
    *ret = TAKE_FD(fd);
    return 0;
}

int unix_connect_path(const char *path, int type, int *ret, struct err *err)
{
    _cleanup_close_ int dir = -1;
    const char *name;
    int r = dir_open_above(path, &dir, &name, err);

    return r < 0 ? r : unix_connect(dir, name, type, ret, err);
}

int fd_send(int sock, const void *data, size_t len, const int *fds, size_t n, int flags)
{
    union {
        char mem[CMSG_SPACE(sizeof(int) * FD_SEND_MAX)];
        struct cmsghdr align;
    } control = {0};
    struct iovec iov = {.iov_base = (void *)data, .iov_len = len};
    struct msghdr msg = {.msg_iov = &iov, .msg_iovlen = 1};
    ssize_t r;

    if (n > FD_SEND_MAX)
        return -EINVAL;
    if (n) {
        struct cmsghdr *c;

        msg.msg_control = control.mem;
        msg.msg_controllen = CMSG_SPACE(sizeof(int) * n);
        c = CMSG_FIRSTHDR(&msg);
        c->cmsg_level = SOL_SOCKET;
        c->cmsg_type = SCM_RIGHTS;
        c->cmsg_len = CMSG_LEN(sizeof(int) * n);
        memcpy(CMSG_DATA(c), fds, sizeof(int) * n);
    }
    do
        r = sendmsg(sock, &msg, flags | MSG_NOSIGNAL);
    while (r < 0 && errno == EINTR);
    return r < 0 ? -errno : 0;
}

bool fd_send_is_short(int r)
{
    return r == -ENOBUFS || r == -ENOMEM || r == -ETOOMANYREFS;
}

/* Keeps the first `room` descriptors of a message and closes the rest. */
static size_t fd_take_fds(struct msghdr *msg, int *fds, size_t room)
{
    size_t kept = 0;

    for (struct cmsghdr *c = CMSG_FIRSTHDR(msg); c; c = CMSG_NXTHDR(msg, c)) {
        size_t count;

        if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS)
            continue;
        count = (c->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        for (size_t i = 0; i < count; i++) {
            int fd;

            memcpy(&fd, CMSG_DATA(c) + i * sizeof(int), sizeof(int));
            if (kept < room)
                fds[kept++] = fd;
            else
                close(fd);
        }
    }
    return kept;
}

ssize_t fd_recv(int sock, void *data, size_t len, int *fds, size_t *n, int flags)
{
    union {
        char mem[CMSG_SPACE(sizeof(int) * FD_SEND_MAX)];
        struct cmsghdr align;
    } control;
    struct iovec iov = {.iov_base = data, .iov_len = len};
    struct msghdr msg = {
        .msg_iov = &iov,
        .msg_iovlen = 1,
        .msg_control = control.mem,
        .msg_controllen = sizeof(control.mem),
    };
    size_t got;
    ssize_t r;

    do
        r = recvmsg(sock, &msg, flags | MSG_CMSG_CLOEXEC);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return -errno;
    got = fd_take_fds(&msg, fds, n ? *n : 0);
    if (msg.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) {
        for (size_t i = 0; i < got; i++)
            fds[i] = fd_close(fds[i]);
        return -EMSGSIZE;
    }
    if (n)
        *n = got;
    return r;
}

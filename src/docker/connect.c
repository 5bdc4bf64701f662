/*
 * connect(2) is never left to block: on a unix socket whose owner hangs with a full backlog it
 * would wait without end, so it is tried again until the deadline; names are resolved by glibc's
 * own helper thread, which is the one way to give getaddrinfo() a deadline.
 */
#include "docker/connect.h"

#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "base/cleanup.h"
#include "base/fd.h"
#include "base/xalloc.h"
#include "docker/docker.h"
#include "docker/tls.h"

enum { RETRY_MS = 20 };

/* A socket of ours may have died with its engine; on TCP nobody would tell. */
enum { KEEP_IDLE = 30, KEEP_INTERVAL = 10, KEEP_COUNT = 3 };

/* clang-format off */
static const struct symptom {
    int errnum;
    enum err_code code;
    const char *msg; /* %s: the address */
    const char *hint;
} symptoms[] = {
    {ENOENT, ERR_ENGINE, "there is no engine at %s: the socket does not exist",
     "Start the engine ('systemctl start docker', or 'podman system service'), or set DOCKER_HOST to where it listens."},
    {ENOTDIR, ERR_ENGINE, "there is no engine at %s: its folder is not a folder",
     "Set DOCKER_HOST to where the engine listens."},
    {ECONNREFUSED, ERR_ENGINE, "the engine at %s is not running: nobody listens there",
     "Start it ('systemctl start docker', or 'podman system service'); its log says why it ended."},
    {EACCES, ERR_DENIED, "no permission to use the engine at %s",
     "Add the user to the socket's group ('usermod -aG docker USER', then log in again), or use a rootless engine."},
    {EPERM, ERR_DENIED, "no permission to use the engine at %s",
     "Add the user to the socket's group ('usermod -aG docker USER', then log in again), or use a rootless engine."},
    {ENETUNREACH, ERR_ENGINE, "the engine at %s cannot be reached: no route to its network",
     "Check the network and DOCKER_HOST."},
    {EHOSTUNREACH, ERR_ENGINE, "the engine at %s cannot be reached: its host does not answer",
     "Check that the host is up, and DOCKER_HOST."},
    {ETIMEDOUT, ERR_TIMEOUT, "the engine at %s takes no connection in time",
     "It hangs, or its host drops packets; see its log, or restart it."},
};
/* clang-format on */

static int fail(const struct docker_endpoint *e, int errnum, struct err *err)
{
    _cleanup_free_ char *where = docker_endpoint_text(e);

    for (size_t i = 0; i < ARRAY_SIZE(symptoms); i++) {
        if (symptoms[i].errnum != errnum)
            continue;
        err_set(err, symptoms[i].code, symptoms[i].msg, where);
        if (err)
            err->errnum = errnum;
        return err_hint(err, "%s", symptoms[i].hint);
    }
    err_sys(err, errnum, "connect to the engine at %s", where);
    if (err)
        err->code = ERR_ENGINE;
    return -ERR_ENGINE;
}

static int try_unix(const char *path, int *ret)
{
    _cleanup_free_ char *folder = xstrdup(path);
    char *name = strrchr(folder, '/') + 1;
    _cleanup_err_ struct err err = ERR_INIT;
    _cleanup_close_ int dirfd = -1;

    name[-1] = '\0';
    dirfd = open(*folder ? folder : "/", O_PATH | O_DIRECTORY | O_CLOEXEC);
    if (dirfd < 0)
        return -errno;
    if (unix_connect(dirfd, name, SOCK_STREAM | SOCK_NONBLOCK, ret, &err) < 0)
        return err.errnum ? -err.errnum : -ENAMETOOLONG;
    return 0;
}

static int dial_unix(const struct docker_endpoint *e, const struct deadline *by, int *ret)
{
    for (;;) {
        int r = try_unix(e->path, ret);

        if (r != -EAGAIN)
            return r;
        if (deadline_passed(by))
            return -ETIMEDOUT;
        poll(NULL, 0, RETRY_MS);
    }
}

static int wait_connected(int fd, const struct deadline *by)
{
    struct pollfd p = {.fd = fd, .events = POLLOUT};
    socklen_t len = sizeof(int);
    int r, errnum = 0;

    do
        r = poll(&p, 1, deadline_ms(by));
    while (r < 0 && errno == EINTR);
    if (r <= 0)
        return r < 0 ? -errno : -ETIMEDOUT;
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &errnum, &len) < 0)
        return -errno;
    return -errnum;
}

static void tune(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},          {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE}, {IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT},
    };

    /* Each only makes things better: a socket without it works too. */
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

static int dial_address(const struct addrinfo *ai, const struct deadline *by, int *ret)
{
    _cleanup_close_ int fd = -1;
    int r;

    fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    tune(fd);
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return -errno;
        r = wait_connected(fd, by);
        if (r < 0)
            return r;
    }
    *ret = TAKE_FD(fd);
    return 0;
}

/* One look-up; on the heap because glibc's thread may still hold it when we give up. */
struct lookup {
    struct gaicb cb;
    struct addrinfo hints;
    char port[8];
    char host[];
};

static void lookup_done(struct lookup *l)
{
    if (l->cb.ar_result)
        freeaddrinfo(l->cb.ar_result);
    free(l);
}

static struct lookup *lookup_new(const struct docker_endpoint *e)
{
    size_t len = strlen(e->host) + 1;
    struct lookup *l = xcalloc(1, sizeof(*l) + len);

    memcpy(l->host, e->host, len);
    snprintf(l->port, sizeof(l->port), "%u", e->port);
    l->hints = (struct addrinfo){.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV};
    l->cb = (struct gaicb){.ar_name = l->host, .ar_service = l->port, .ar_request = &l->hints};
    return l;
}

static int lookup_wait(struct lookup *l, const struct deadline *by)
{
    const struct gaicb *list[] = {&l->cb};
    int r;

    while ((r = gai_error(&l->cb)) == EAI_INPROGRESS) {
        int ms = deadline_ms(by);
        struct timespec ts = {ms / 1000, (long)(ms % 1000) * 1000000};

        if (deadline_passed(by))
            return EAI_INPROGRESS;
        gai_suspend(list, 1, ms < 0 ? NULL : &ts);
    }
    return r;
}

/* 0 or an EAI_ code; EAI_INPROGRESS: the deadline passed. */
static int resolve(const struct docker_endpoint *e, const struct deadline *by, struct lookup **ret)
{
    struct sigevent quiet = {.sigev_notify = SIGEV_NONE};
    struct lookup *l = lookup_new(e);
    struct gaicb *list[] = {&l->cb};
    int r;

    r = getaddrinfo_a(GAI_NOWAIT, list, 1, &quiet);
    if (r == 0)
        r = lookup_wait(l, by);
    /* What cannot be cancelled any more is left to glibc's thread: it writes there when it is done.
     */
    if (r == EAI_INPROGRESS && gai_cancel(&l->cb) == EAI_NOTCANCELED)
        return r;
    if (r != 0) {
        lookup_done(l);
        return r;
    }
    *ret = l;
    return 0;
}

static int dial_tcp(const struct docker_endpoint *e, const struct deadline *by, int *ret,
                    struct err *err)
{
    struct lookup *l = NULL;
    int r = resolve(e, by, &l);

    if (r == EAI_INPROGRESS)
        return fail(e, ETIMEDOUT, err);
    if (r != 0) {
        err_set(err, ERR_ENGINE, "the engine's host '%s' is not found: %s", e->host,
                gai_strerror(r));
        return err_hint(err, "Check DOCKER_HOST and the name service.");
    }
    r = -EADDRNOTAVAIL;
    for (const struct addrinfo *ai = l->cb.ar_result; ai && r < 0; ai = ai->ai_next)
        r = dial_address(ai, by, ret);
    lookup_done(l);
    return r < 0 ? fail(e, -r, err) : 0;
}

int docker_dial(const struct docker_endpoint *e, const struct deadline *by, int *ret,
                struct err *err)
{
    int r;

    if (deadline_passed(by))
        return fail(e, ETIMEDOUT, err);
    if (e->transport != DOCKER_UNIX)
        return dial_tcp(e, by, ret, err);
    r = dial_unix(e, by, ret);
    return r < 0 ? fail(e, -r, err) : 0;
}

int docker_connect(const struct docker *d, const struct deadline *by, int *ret, struct err *err)
{
    _cleanup_close_ int fd = -1;
    int r;

    r = docker_dial(&d->endpoint, by, &fd, err);
    if (r < 0)
        return r;
    if (d->tls)
        return docker_tls_wrap(d->tls, &d->endpoint, TAKE_FD(fd), by, ret, err);
    *ret = TAKE_FD(fd);
    return 0;
}

/*
 * TCP. A thread resolves names, because getaddrinfo() has no deadline; after the deadline the
 * thread is left alone. (getaddrinfo_a() does the same, on a stack that is too small for a
 * sanitizer.)
 */
#include "dockerapi/net.h"

#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include "dockerapi/connect.h"
#include "dockerapi/thread.h"
#include "lib/base/cleanup.h"
#include "lib/base/xalloc.h"

/* Keepalive finds an engine that died without closing its connections. */
enum { KEEP_IDLE = 30, KEEP_INTERVAL = 10, KEEP_COUNT = 3 };

static int net_wait_connected(int fd, const struct deadline *by)
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

static void net_tune(int fd)
{
    static const struct {
        int level, name, value;
    } options[] = {
        {IPPROTO_TCP, TCP_NODELAY, 1},          {SOL_SOCKET, SO_KEEPALIVE, 1},
        {IPPROTO_TCP, TCP_KEEPIDLE, KEEP_IDLE}, {IPPROTO_TCP, TCP_KEEPINTVL, KEEP_INTERVAL},
        {IPPROTO_TCP, TCP_KEEPCNT, KEEP_COUNT},
    };

    /* Errors are ignored: the connection works without these options. */
    for (size_t i = 0; i < ARRAY_SIZE(options); i++)
        (void)setsockopt(fd, options[i].level, options[i].name, &options[i].value, sizeof(int));
}

static int net_dial_address(const struct addrinfo *ai, const struct deadline *by, int *ret)
{
    _cleanup_close_ int fd = -1;
    int r;

    fd = socket(ai->ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
    if (fd < 0)
        return -errno;
    net_tune(fd);
    if (connect(fd, ai->ai_addr, ai->ai_addrlen) < 0) {
        if (errno != EINPROGRESS)
            return -errno;
        r = net_wait_connected(fd, by);
        if (r < 0)
            return r;
    }
    *ret = TAKE_FD(fd);
    return 0;
}

/* One lookup. The waiting caller and the resolving thread share it; the last one frees it. */
struct net_lookup {
    atomic_int holders;
    atomic_int code; /* EAI_ code; EAI_INPROGRESS until the result is known */
    int done_fd;     /* eventfd: wakes the caller */
    struct addrinfo *result;
    char port[8];
    char host[];
};

static void net_lookup_leave(struct net_lookup *l)
{
    if (atomic_fetch_sub(&l->holders, 1) > 1)
        return;
    if (l->result)
        freeaddrinfo(l->result);
    fd_close(l->done_fd);
    free(l);
}

static int net_ask(const char *host, const char *port, int flags, struct addrinfo **ret)
{
    struct addrinfo hints = {.ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV | flags};

    return getaddrinfo(host, port, &hints, ret);
}

static void *net_lookup_main(void *arg)
{
    struct net_lookup *l = arg;

    atomic_store(&l->code, net_ask(l->host, l->port, 0, &l->result));
    eventfd_write(l->done_fd, 1);
    net_lookup_leave(l);
    return NULL;
}

static struct net_lookup *net_lookup_new(const struct docker_endpoint *e)
{
    size_t len = strlen(e->host) + 1;
    struct net_lookup *l = xcalloc(1, sizeof(*l) + len);

    memcpy(l->host, e->host, len);
    snprintf(l->port, sizeof(l->port), "%u", e->port);
    l->done_fd = eventfd(0, EFD_CLOEXEC);
    atomic_init(&l->holders, 1);
    atomic_init(&l->code, EAI_INPROGRESS);
    return l;
}

/* 0 or an EAI_ code; EAI_INPROGRESS: the deadline passed. */
static int net_lookup_wait(struct net_lookup *l, const struct deadline *by)
{
    struct pollfd p = {.fd = l->done_fd, .events = POLLIN};
    int r;

    if (l->done_fd < 0)
        return EAI_SYSTEM;
    /* A numeric address needs no thread. */
    if (net_ask(l->host, l->port, AI_NUMERICHOST, &l->result) == 0)
        return 0;
    atomic_fetch_add(&l->holders, 1);
    errno = docker_thread(net_lookup_main, l);
    if (errno) {
        atomic_fetch_sub(&l->holders, 1);
        return EAI_SYSTEM;
    }
    do
        r = poll(&p, 1, deadline_ms(by));
    while (r < 0 && errno == EINTR);
    return atomic_load(&l->code);
}

int docker_net_dial(const struct docker_endpoint *e, const struct deadline *by, int *ret,
                    struct err *err)
{
    struct net_lookup *l = net_lookup_new(e);
    int found = net_lookup_wait(l, by), r = -EADDRNOTAVAIL;

    if (found == 0)
        for (const struct addrinfo *ai = l->result; ai && r < 0; ai = ai->ai_next)
            r = net_dial_address(ai, by, ret);
    net_lookup_leave(l);
    if (found == EAI_INPROGRESS)
        return docker_unreached(e, ETIMEDOUT, err);
    if (found == 0)
        return r < 0 ? docker_unreached(e, -r, err) : 0;
    err_set(err, ERR_ENGINE, "engine host '%s': not found (%s)", e->host, gai_strerror(found));
    return err_hint(err, "Check DOCKER_HOST and the name resolution of this machine.");
}

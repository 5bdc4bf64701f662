#include "lib/base/address.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/parse.h"

enum { BACKLOG = 128, CONNECT_TIMEOUT_SEC = 10 };

static int address_not_an_address(const char *s, struct err *err)
{
    err_set(err, ERR_INVALID, "'%.100s' is not an address with a port", s);
    return err_hint(err, "Write it as 127.0.0.1:7070 or [::1]:7070. Host names are not supported.");
}

static bool address_parse_host(const char *host, bool bracketed, struct address *ret)
{
    if (bracketed) {
        ret->v6.sin6_family = AF_INET6;
        ret->len = sizeof(ret->v6);
        return inet_pton(AF_INET6, host, &ret->v6.sin6_addr) == 1;
    }
    ret->v4.sin_family = AF_INET;
    ret->len = sizeof(ret->v4);
    return inet_pton(AF_INET, STREQ(host, "localhost") ? "127.0.0.1" : host, &ret->v4.sin_addr) ==
           1;
}

int address_parse(const char *s, struct address *ret, struct err *err)
{
    static const char scheme[] = "tcp://";
    const char *text = strncmp(s, scheme, sizeof(scheme) - 1) == 0 ? s + sizeof(scheme) - 1 : s;
    const char *colon = strrchr(text, ':');
    bool bracketed = *text == '[';
    struct address a = {0};
    char host[INET6_ADDRSTRLEN];
    size_t len;
    uint32_t port;

    if (!colon || (bracketed && (colon < text + 2 || colon[-1] != ']')))
        return address_not_an_address(s, err);
    len = (size_t)(colon - text) - (bracketed ? 2 : 0);
    if (len == 0 || len >= sizeof(host))
        return address_not_an_address(s, err);
    memcpy(host, text + bracketed, len);
    host[len] = '\0';
    if (!address_parse_host(host, bracketed, &a) ||
        parse_u32(colon + 1, 0, UINT16_MAX, &port, NULL) < 0)
        return address_not_an_address(s, err);
    /* The port has the same offset in both structs. */
    a.v4.sin_port = htons((uint16_t)port);
    *ret = a;
    return 0;
}

uint16_t address_port(const struct address *a)
{
    return ntohs(a->v4.sin_port);
}

const char *address_format(const struct address *a, char buf[static ADDRESS_MAX])
{
    char host[INET6_ADDRSTRLEN] = "?";
    bool v6 = a->any.sa_family == AF_INET6;

    inet_ntop(a->any.sa_family, v6 ? (const void *)&a->v6.sin6_addr : (const void *)&a->v4.sin_addr,
              host, sizeof(host));
    snprintf(buf, ADDRESS_MAX, v6 ? "[%s]:%u" : "%s:%u", host, address_port(a));
    return buf;
}

bool address_is_loopback(const struct address *a)
{
    if (a->any.sa_family == AF_INET6)
        return IN6_IS_ADDR_LOOPBACK(&a->v6.sin6_addr);
    return ntohl(a->v4.sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
}

int address_listen(struct address *a, int *ret_fd, struct err *err)
{
    _cleanup_close_ int fd =
        socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP);
    char text[ADDRESS_MAX];
    socklen_t len = a->len;

    if (fd < 0)
        return err_sys(err, errno, "make a socket for '%s'", address_format(a, text));
    /* Old connections of the last daemon (TIME_WAIT) must not keep the next one from its port.
     * A process that listens there still does. */
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (a->any.sa_family == AF_INET6)
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &(int){1}, sizeof(int));
    if (bind(fd, &a->any, a->len) < 0 || listen(fd, BACKLOG) < 0) {
        err_sys(err, errno, "listen on '%s'", address_format(a, text));
        return err_hint(err, "Use an address of this machine and a free port.");
    }
    if (getsockname(fd, &a->any, &len) < 0)
        return err_sys(err, errno, "inspect the listening socket");
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int address_connect(const struct address *a, int *ret_fd, struct err *err)
{
    const struct timeval limit = {.tv_sec = CONNECT_TIMEOUT_SEC}, none = {0};
    _cleanup_close_ int fd = socket(a->any.sa_family, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_TCP);
    char text[ADDRESS_MAX];

    address_format(a, text);
    if (fd < 0)
        return err_sys(err, errno, "make a socket for '%s'", text);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    /* Without it a machine that does not answer would block us for minutes. */
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, &a->any, a->len) < 0)
        return err_sys(err, errno == EINPROGRESS ? ETIMEDOUT : errno, "connect to '%s'", text);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none));
    *ret_fd = TAKE_FD(fd);
    return 0;
}

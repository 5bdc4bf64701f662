#include "lib/os/dial.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lib/base/cleanup.h"

enum { DIAL_TIMEOUT_SEC = 10 };

/* 0, -errno, with the socket in *ret_fd. A full backlog would hold us for minutes. */
static int os_dial_dial(int family, const void *to, socklen_t len, int *ret_fd)
{
    const struct timeval limit = {.tv_sec = DIAL_TIMEOUT_SEC}, none = {0};
    _cleanup_close_ int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0);

    if (fd < 0)
        return -errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof(limit));
    if (connect(fd, to, len) < 0)
        return errno == EINPROGRESS ? -ETIMEDOUT : -errno;
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &none, sizeof(none));
    *ret_fd = TAKE_FD(fd);
    return 0;
}

int dial_inside(uint16_t port, int *ret_fd, struct err *err)
{
    const struct sockaddr_in v4 = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr = {htonl(INADDR_LOOPBACK)}};
    const struct sockaddr_in6 v6 = {
        .sin6_family = AF_INET6, .sin6_port = htons(port), .sin6_addr = in6addr_loopback};
    int r = os_dial_dial(AF_INET, &v4, sizeof(v4), ret_fd);

    /* Some services listen on "localhost", and get only its newer half. */
    if (r == -ECONNREFUSED && os_dial_dial(AF_INET6, &v6, sizeof(v6), ret_fd) == 0)
        return 0;
    if (r == -ECONNREFUSED) {
        err_set(err, ERR_NOT_FOUND, "nothing listens on port %u inside the sandbox", port);
        return err_hint(err, "The service must listen on 127.0.0.1 or 0.0.0.0.");
    }
    if (r == -ETIMEDOUT)
        return err_set(err, ERR_TIMEOUT, "port %u inside the sandbox does not answer", port);
    return r < 0 ? err_sys(err, -r, "connect to port %u inside the sandbox", port) : 0;
}

#include "lib/os/listen.h"

#include <errno.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "lib/base/cleanup.h"

enum { BACKLOG = 128 };

int listen_inside(uint16_t port, int *ret_fd, struct err *err)
{
    const struct sockaddr_in at = {
        .sin_family = AF_INET, .sin_port = htons(port), .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    _cleanup_close_ int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);

    /* Not by those of an earlier listener that have just ended; one that lives keeps the port. */
    if (fd >= 0)
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &(int){1}, sizeof(int));
    if (fd < 0 || bind(fd, (const struct sockaddr *)&at, sizeof(at)) < 0 || listen(fd, BACKLOG) < 0)
        return err_sys(err, errno, "listen on port %u inside the sandbox", port);
    *ret_fd = TAKE_FD(fd);
    return 0;
}

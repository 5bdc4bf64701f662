/*
 * The two directions must not block each other, or a peer that waits for us to read would wait for
 * ever. Sockets use MSG_DONTWAIT. Pipes and terminals share their flags with other programs, so
 * they stay blocking; a write of PIPE_BUF bytes after POLLOUT does not block.
 */
#include "cli/pump.h"

#include <errno.h>
#include <limits.h>
#include <poll.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

struct flow {
    int from, to;
    bool from_socket, to_socket;
    bool ended; /* `from` reached its end */
    bool over;  /* and all bytes are written, or `to` is closed */
    bool broken;
    char *data; /* owned */
    size_t off, len;
};

static bool pump_is_socket(int fd)
{
    struct stat st;

    return fstat(fd, &st) == 0 && S_ISSOCK(st.st_mode);
}

static void pump_flow_init(struct flow *f, int from, int to)
{
    *f = (struct flow){.from = from,
                       .to = to,
                       .from_socket = pump_is_socket(from),
                       .to_socket = pump_is_socket(to),
                       .data = xmalloc(PUMP_SIZE)};
}

static void pump_flow_read(struct flow *f)
{
    ssize_t n = f->from_socket ? recv(f->from, f->data, PUMP_SIZE, MSG_DONTWAIT)
                               : read(f->from, f->data, PUMP_SIZE);

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    f->off = 0;
    f->len = n > 0 ? (size_t)n : 0;
    f->ended = n <= 0;
    if (!f->ended)
        return;
    f->over = true;
    if (f->to_socket)
        shutdown(f->to, SHUT_WR);
    else
        close(f->to);
}

static void pump_flow_write(struct flow *f)
{
    ssize_t n = f->to_socket ? send(f->to, f->data + f->off, f->len, MSG_DONTWAIT | MSG_NOSIGNAL)
                             : write(f->to, f->data + f->off, MIN(f->len, (size_t)PIPE_BUF));

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n < 0) {
        f->over = f->broken = true;
        return;
    }
    f->off += (size_t)n;
    f->len -= (size_t)n;
}

static void pump_flow_poll(const struct flow *f, struct pollfd *from, struct pollfd *to)
{
    *from = (struct pollfd){.fd = f->over || f->len ? -1 : f->from, .events = POLLIN};
    *to = (struct pollfd){.fd = f->over || !f->len ? -1 : f->to, .events = POLLOUT};
}

static void pump_flow_step(struct flow *f, const struct pollfd *from, const struct pollfd *to)
{
    if (to->fd >= 0 && to->revents)
        pump_flow_write(f);
    else if (from->fd >= 0 && from->revents)
        pump_flow_read(f);
}

void pump(int in, int out, int sock, const struct buf *early)
{
    struct flow up, down;

    pump_flow_init(&up, in, sock);
    pump_flow_init(&down, sock, out);
    down.len = MIN(early->len, (size_t)PUMP_SIZE);
    memcpy(down.data, buf_data(early), down.len);
    while (!(up.over && down.over) && !down.broken) {
        struct pollfd fds[5];

        pump_flow_poll(&up, &fds[0], &fds[1]);
        pump_flow_poll(&down, &fds[2], &fds[3]);
        /* When the direction from the socket has ended, only a hang-up can still be reported. */
        fds[4] = (struct pollfd){.fd = down.over ? sock : -1};
        if (poll(fds, ARRAY_SIZE(fds), -1) < 0 && errno != EINTR)
            break;
        if (fds[4].fd >= 0 && fds[4].revents & (POLLHUP | POLLERR))
            break;
        pump_flow_step(&up, &fds[0], &fds[1]);
        pump_flow_step(&down, &fds[2], &fds[3]);
    }
    free(up.data);
    free(down.data);
}

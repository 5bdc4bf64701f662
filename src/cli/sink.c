#include "cli/sink.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/macro.h"

void sink_done(struct sink *s)
{
    s->own = fd_close(s->own);
}

/* Called at the first write, so that a command without output costs no system call. */
static enum sink_kind sink_probe(struct sink *s)
{
    char path[32];
    struct stat st;

    if (fstat(s->fd, &st) < 0)
        return SINK_PLAIN; /* closed: write(2) reports it */
    if (S_ISSOCK(st.st_mode))
        return SINK_SOCKET;
    if (!S_ISFIFO(st.st_mode) && !(S_ISCHR(st.st_mode) && isatty(s->fd)))
        return SINK_PLAIN;
    snprintf(path, sizeof(path), "/proc/self/fd/%d", s->fd);
    s->own = open(path, O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    return s->own >= 0 ? SINK_OWN : SINK_PIECES;
}

static ssize_t sink_write_piece(struct sink *s, const char *data, size_t len)
{
    struct pollfd p = {.fd = s->fd, .events = POLLOUT};

    /* A pipe that polls writable takes PIPE_BUF bytes at once (pipe(7)). */
    if (poll(&p, 1, 0) == 0) {
        errno = EAGAIN;
        return -1;
    }
    return write(s->fd, data, MIN(len, (size_t)PIPE_BUF));
}

ssize_t sink_write(struct sink *s, const char *data, size_t len)
{
    ssize_t n;

    if (s->kind == SINK_UNKNOWN)
        s->kind = sink_probe(s);
    do
        n = s->kind == SINK_SOCKET   ? send(s->fd, data, len, MSG_DONTWAIT | MSG_NOSIGNAL)
            : s->kind == SINK_PIECES ? sink_write_piece(s, data, len)
                                     : write(sink_fd(s), data, len);
    while (n < 0 && errno == EINTR);
    if (n >= 0)
        return n;
    return errno == EAGAIN ? 0 : -errno;
}

/*
 * Writing to our own stdout and stderr without ever blocking in write(2), so that a reader who
 * stops reading cannot keep us from passing on a Ctrl-C.
 *
 * The flags of an inherited descriptor belong to everybody who shares it (the shell, the other end
 * of `2>&1`), so O_NONBLOCK is never set on it: a pipe or terminal is opened a second time through
 * /proc/self/fd; where that is refused, pieces small enough never to block are written after poll.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum sink_kind { SINK_UNKNOWN, SINK_PLAIN, SINK_OWN, SINK_SOCKET, SINK_PIECES };

struct sink {
    int fd;  /* borrowed */
    int own; /* owned second opening, or -1 */
    enum sink_kind kind;
};

#define SINK_INIT(fd_)                                                                             \
    {                                                                                              \
        .fd = (fd_), .own = -1                                                                     \
    }

void sink_done(struct sink *s);
/* Bytes taken, 0 when it would block (poll sink_fd() for POLLOUT), or -errno. */
ssize_t sink_write(struct sink *s, const char *data, size_t len);

static inline int sink_fd(const struct sink *s)
{
    return s->own >= 0 ? s->own : s->fd;
}

/*
 * Writes to our own stdout and stderr without blocking in write(2), so that a reader that stops
 * reading cannot keep us from forwarding a Ctrl-C.
 *
 * An inherited descriptor shares its flags with other processes (the shell, the other end of
 * `2>&1`), so O_NONBLOCK is never set on it. Instead, a pipe or a terminal is opened a second time
 * through /proc/self/fd. If that is refused, poll(2) and small writes that cannot block are used.
 */
#pragma once

#include <stddef.h>
#include <sys/types.h>

enum sink_kind { SINK_UNKNOWN, SINK_PLAIN, SINK_OWN, SINK_SOCKET, SINK_PIECES };

struct sink {
    int fd;  /* borrowed */
    int own; /* owned: the second descriptor, or -1 */
    enum sink_kind kind;
};

#define SINK_INIT(fd_)                                                                             \
    {                                                                                              \
        .fd = (fd_), .own = -1                                                                     \
    }

void sink_done(struct sink *s);
/* Returns the number of bytes written, 0 when it would block (poll sink_fd() for POLLOUT), or
 * -errno. */
ssize_t sink_write(struct sink *s, const char *data, size_t len);

static inline int sink_fd(const struct sink *s)
{
    return s->own >= 0 ? s->own : s->fd;
}

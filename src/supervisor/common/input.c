/*
 * Writes the input of a handover to the command's stdin as fast as the command reads, then closes
 * it. The supervisor does it and not the daemon, so that the input arrives whole even if the daemon
 * dies.
 */
#include <errno.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "supervisor/common/supervisor.h"

enum { INPUT_PIECE = 64 << 10 };

void input_close(struct supervised_exec *x)
{
    source_close(x->sup, &x->input);
    handover_done(&x->handover);
}

/* After an error nobody reads stdin any more, so the rest of the input is dropped. */
static void input_on_room(struct loop_source *src, uint32_t events _unused_)
{
    struct supervised_exec *x = container_of(src, struct supervised_exec, input);
    size_t left = x->handover.input_len - x->input_at;
    ssize_t n = write(src->fd, x->handover.input + x->input_at, MIN(left, (size_t)INPUT_PIECE));

    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        return;
    if (n > 0)
        x->input_at += (size_t)n;
    if (n < 0 || x->input_at == x->handover.input_len)
        input_close(x);
}

void input_begin(struct supervised_exec *x, int fd)
{
    _cleanup_close_ int in = fd;

    if (in < 0 || !x->handover.input_len || fd_set_nonblock(in, true) < 0 ||
        source_add(x->sup, &x->input, in, EPOLLOUT, input_on_room, NULL) < 0) {
        input_close(x);
        return;
    }
    TAKE_FD(in);
}

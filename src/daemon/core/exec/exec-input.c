/*
 * A pipe has one writer, which is here: when it closes, the command sees the end of its input. The
 * exec owns the descriptor, so that clients can come and go while a command reads.
 */
#include "daemon/core/exec/exec-input.h"

#include <errno.h>
#include <unistd.h>

#include "daemon/core/exec/exec-internal.h"
#include "daemon/core/sandbox/manager-internal.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/loop/loop.h"

/* A client may send a piece of 1 MiB while a little less than FULL is pending. */
enum { FULL = 256 << 10, PENDING_MAX = FULL + (1 << 20) };

void exec_input_init(struct exec_input *in)
{
    *in = (struct exec_input){.fd = -1, .pending = BUF_INIT(PENDING_MAX)};
}

static void exec_input_drop(struct exec_input *in)
{
    loop_watch_free(TAKE_PTR(in->watch));
    in->fd = fd_close(in->fd);
    buf_done(&in->pending);
}

void exec_input_done(struct exec *x)
{
    exec_input_drop(&x->input);
    x->input.closed = true;
}

/* The supervisor notes that the input is whole. It also writes the end-of-file character of a
 * terminal. */
static void exec_input_close(struct exec *x)
{
    x->input.ending = false;
    if (!x->req.tty)
        exec_input_done(x);
    exec_stdin_close(x);
}

/*
 * EPIPE: the command has closed its stdin, and the rest is dropped. After any other error the
 * command is killed: it must not mistake a part of its input for the whole.
 */
static void exec_input_failed(struct exec *x)
{
    if (errno == EPIPE) {
        exec_input_done(x);
        return;
    }
    exec_kill(x, NULL, NULL, NULL);
    x->input.broken = true; /* it stays open: the command must not see an end of file */
}

static void exec_input_push(struct exec *x)
{
    struct exec_input *in = &x->input;

    while (in->pending.len) {
        ssize_t n = write(in->fd, buf_data(&in->pending), in->pending.len);

        if (n > 0) {
            buf_consume(&in->pending, (size_t)n);
            continue;
        }
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno != EAGAIN)
            exec_input_failed(x);
        return;
    }
}

static void exec_input_flush(struct exec *x);

static void exec_input_writable(void *arg, int events)
{
    struct exec *x = arg;
    bool full = exec_input_is_full(x);

    (void)events;
    exec_input_flush(x);
    if (full && !exec_input_is_full(x))
        exec_notify(x, EXEC_EVENT_INPUT);
}

static void exec_input_flush(struct exec *x)
{
    struct exec_input *in = &x->input;

    if (in->fd >= 0 && !in->broken)
        exec_input_push(x);
    if (in->broken)
        return;
    if (in->fd >= 0 && in->pending.len && !in->watch)
        in->watch = loop_watch_new(x->m->loop, in->fd, exec_input_writable, x);
    if (in->watch)
        loop_watch_set(in->watch, in->pending.len ? LOOP_WRITE : 0);
    if (in->ending && !in->closed && !in->pending.len && x->state == EXEC_RUNNING)
        exec_input_close(x);
}

void exec_input_open(struct exec *x, int fd)
{
    if (fd >= 0 && x->input.fd < 0 && !x->input.closed && x->state == EXEC_RUNNING) {
        fd_set_nonblock(fd, true);
        x->input.fd = TAKE_FD(fd);
    }
    fd_close(fd);
    exec_input_flush(x);
}

int exec_input_write(struct exec *x, const void *data, size_t len, struct err *err)
{
    struct exec_input *in = &x->input;

    if (in->fd < 0 && !in->closed && !x->req.tty && !x->req.want_stdin)
        return err_set(err, ERR_INVALID, "stdin: the exec was started without it");
    if (in->closed || in->broken || in->ending) {
        in->taken += len;
        return 0;
    }
    if (buf_append(&in->pending, data, len) < 0)
        return err_set(err, ERR_LIMIT, "stdin: too much data is pending");
    in->taken += len;
    exec_input_flush(x);
    return 0;
}

bool exec_input_is_full(const struct exec *x)
{
    return x->input.pending.len >= FULL;
}

void exec_input_end(struct exec *x)
{
    x->input.ending = true;
    exec_input_flush(x);
}

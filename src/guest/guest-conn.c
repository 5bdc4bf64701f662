#include "guest/guest-conn.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/time.h"

int guest_conn_open_async(struct guest_conn *l, struct err *err)
{
    int r;

    *l = (struct guest_conn)GUEST_CONN_INIT;
    r = fd_set_nonblock(GUEST_CONN_IN, true);
    if (r < 0)
        return err_sys(err, -r, "prepare the connection to the relay");
    r = fd_set_nonblock(GUEST_CONN_OUT, true);
    return r < 0 ? err_sys(err, -r, "prepare the connection to the relay") : 0;
}

void guest_conn_done(struct guest_conn *l)
{
    buf_done(&l->in);
    buf_done(&l->out);
}

bool guest_conn_read(struct guest_conn *l)
{
    size_t room = l->in.max - l->in.len;
    char *p = room ? buf_reserve(&l->in, room) : NULL;
    ssize_t n;

    if (!p)
        return true;
    do
        n = read(GUEST_CONN_IN, p, room);
    while (n < 0 && errno == EINTR);
    if (n < 0 && errno == EAGAIN)
        return true;
    if (n <= 0)
        return false;
    buf_commit(&l->in, (size_t)n);
    return true;
}

int guest_conn_next(struct guest_conn *l, struct guest_frame *ret, struct err *err)
{
    size_t used = 0;
    int r;

    buf_consume(&l->in, l->taken);
    l->taken = 0;
    r = guest_parse(buf_data(&l->in), l->in.len, GUEST_SIDE_RELAY, ret, &used, err);
    if (r > 0)
        l->taken = used;
    return r;
}

int guest_conn_wait(struct guest_conn *l, struct guest_frame *ret, struct err *err)
{
    int r;

    while ((r = guest_conn_next(l, ret, err)) == 0)
        if (!guest_conn_read(l))
            return 0;
    return r;
}

void guest_conn_queued(struct guest_conn *l, int put_result)
{
    if (put_result < 0)
        l->gone = true;
}

ssize_t guest_conn_forward(struct guest_conn *l, enum guest_type type, int fd)
{
    char *p = buf_reserve(&l->out, GUEST_HEAD_SIZE + GUEST_PAYLOAD_MAX);
    ssize_t n;

    if (!p)
        return -EAGAIN;
    n = read(fd, p + GUEST_HEAD_SIZE, GUEST_PAYLOAD_MAX);
    if (n <= 0)
        return n < 0 ? -errno : 0;
    guest_put_head(p, type, (uint32_t)n);
    buf_commit(&l->out, GUEST_HEAD_SIZE + (size_t)n);
    return n;
}

void guest_conn_flush(struct guest_conn *l)
{
    while (l->out.len && !l->gone) {
        ssize_t n = write(GUEST_CONN_OUT, buf_data(&l->out), l->out.len);

        if (n >= 0)
            buf_consume(&l->out, (size_t)n);
        else if (errno == EAGAIN)
            return;
        else if (errno != EINTR)
            l->gone = true;
    }
}

/* Podman may drop bytes that it has not forwarded when it sees the process end. */
void guest_conn_part(const struct guest_conn *l)
{
    struct deadline by = deadline_in(GUEST_CONN_PART_SEC * USEC_PER_SEC);
    struct pollfd in = {.fd = GUEST_CONN_IN, .events = POLLIN};
    char dropped[4096];

    while (!l->gone && poll(&in, 1, deadline_ms(&by)) > 0)
        if (read(GUEST_CONN_IN, dropped, sizeof(dropped)) <= 0)
            return;
}

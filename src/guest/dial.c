/*
 * `guest dial`: a connection to a service inside, in frames both ways. Each direction ends by
 * itself, as in TCP.
 */
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/guest-conn.h"
#include "guest/modes.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/os/dial.h"

struct dial {
    struct guest_conn conn;
    int sock;
    struct buf pending; /* for the service; while it is not empty, the relay is not read */
    bool in_eof;        /* the relay's side has ended */
    bool shut;          /* and the socket is shut down for writing */
    bool out_eof;       /* the service's side has ended */
    bool broken;        /* both have ended, by an error */
};

static bool guest_dial_take_frame(struct dial *d, const struct guest_frame *f)
{
    if (d->in_eof)
        return false;
    if (f->type == GUEST_STDIN_EOF)
        d->in_eof = true;
    else
        return f->type == GUEST_STDIN && buf_append(&d->pending, f->data, f->length) >= 0;
    return true;
}

static void guest_dial_write_service(struct dial *d)
{
    ssize_t n = 0;

    if (d->pending.len)
        n = send(d->sock, buf_data(&d->pending), d->pending.len, MSG_NOSIGNAL);
    if (n < 0 && errno != EAGAIN && errno != EINTR)
        d->broken = true;
    if (n > 0)
        buf_consume(&d->pending, (size_t)n);
    if (d->in_eof && !d->pending.len && !d->shut) {
        d->shut = true;
        shutdown(d->sock, SHUT_WR);
    }
}

/* Takes frames as long as the service accepts their bytes. */
static void guest_dial_pass_on(struct dial *d)
{
    struct guest_frame f;
    int r = 1;

    while (r && !d->conn.gone && !d->broken) {
        guest_dial_write_service(d);
        if (d->pending.len)
            return;
        r = guest_conn_next(&d->conn, &f, NULL);
        if (r < 0 || (r && !guest_dial_take_frame(d, &f)))
            d->conn.gone = true;
    }
}

static void guest_dial_read_service(struct dial *d)
{
    ssize_t n = guest_conn_forward(&d->conn, GUEST_STDOUT, d->sock);

    if (n > 0 || n == -EAGAIN || n == -EINTR)
        return;
    d->broken = n < 0;
    d->out_eof = true;
    guest_conn_queued(&d->conn, guest_put(&d->conn.out, GUEST_STDOUT_EOF, NULL, 0));
}

/* Sockets without wanted events are not polled, because a hang-up would wake us for ever. A hang-up
 * of the relay ends the dial, even while its bytes wait. */
static void guest_dial_turn(struct dial *d)
{
    bool hear = !d->pending.len, read = !d->out_eof && guest_conn_has_room(&d->conn);
    bool write = d->pending.len;
    short events = (short)((read ? POLLIN : 0) | (write ? POLLOUT : 0));
    struct pollfd polls[] = {
        {.fd = GUEST_CONN_IN, .events = (short)(hear ? POLLIN : 0)},
        {.fd = GUEST_CONN_OUT, .events = (short)(d->conn.out.len ? POLLOUT : 0)},
        {.fd = events ? d->sock : -1, .events = events},
    };

    if (poll(polls, ARRAY_SIZE(polls), -1) < 0)
        return;
    if (polls[1].revents & (POLLERR | POLLNVAL))
        d->conn.gone = true;
    if (polls[0].revents && (!hear || !guest_conn_read(&d->conn)))
        d->conn.gone = true;
    if (read && polls[2].revents & (POLLIN | POLLHUP | POLLERR))
        guest_dial_read_service(d);
    guest_dial_pass_on(d);
    guest_conn_flush(&d->conn);
}

static void guest_dial_serve(struct dial *d)
{
    const struct guest_done done = {0};

    guest_conn_queued(&d->conn, guest_put_u32(&d->conn.out, GUEST_STARTED, 0));
    guest_conn_flush(&d->conn);
    while (!d->conn.gone && !d->broken && !(d->shut && d->out_eof))
        guest_dial_turn(d);
    if (!d->out_eof)
        guest_conn_queued(&d->conn, guest_put(&d->conn.out, GUEST_STDOUT_EOF, NULL, 0));
    guest_conn_queued(&d->conn, guest_put_done(&d->conn.out, &done));
}

static int guest_dial_connect(struct dial *d, const char *text, struct err *err)
{
    uint32_t port = 0;
    int r;

    r = parse_u32(text ? text : "", 1, UINT16_MAX, &port, err);
    if (r < 0)
        return r;
    r = dial_inside((uint16_t)port, &d->sock, err);
    if (r < 0)
        return r;
    if (fd_set_nonblock(d->sock, true) < 0)
        return err_sys(err, errno, "prepare the connection");
    return 0;
}

int guest_dial(char **argv, struct err *err)
{
    struct dial d = {.sock = -1, .pending = BUF_INIT(GUEST_PAYLOAD_MAX)};
    _cleanup_err_ struct err why = ERR_INIT;
    int r;

    r = guest_conn_open_async(&d.conn, err);
    if (r < 0)
        return r;
    guest_conn_queued(&d.conn, guest_put_hello(&d.conn.out, (uint32_t)getpid()));
    if (guest_dial_connect(&d, argv[0], &why) < 0)
        guest_conn_queued(&d.conn, guest_put_failed(&d.conn.out, &why));
    else
        guest_dial_serve(&d);
    /* Blocking, so that a slow reader gets the last frames too. */
    fd_set_nonblock(GUEST_CONN_OUT, false);
    guest_conn_flush(&d.conn);
    fd_close(d.sock);
    buf_done(&d.pending);
    guest_conn_done(&d.conn);
    return 0;
}

/*
 * `guest listen`: the sandbox's access to the package cache if the relay cannot enter the sandbox's
 * network. Connections from inside leave as frames (proto/guest-mux.h). The relay decides where
 * they lead; no byte from inside can choose it.
 *
 * When GUEST_MUX_CHANNELS_MAX connections are open, further ones wait in the socket's queue.
 */
#include <errno.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "guest/guest-conn.h"
#include "guest/modes.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"
#include "lib/os/listen.h"
#include "proto/guest-mux.h"

enum { POLL_IN, POLL_OUT, POLL_SOCK, POLL_CHANNELS };

struct guest_listener {
    struct guest_conn conn;
    struct guest_mux mux;
    int sock;
};

static void guest_listen_remove_channel(struct guest_listener *l, struct guest_channel *c)
{
    guest_mux_remove(&l->mux, c);
    free(c);
}

/* ---- connections from inside ---- */

static void guest_listen_take_connection(struct guest_listener *l)
{
    int fd = accept4(l->sock, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    uint32_t id;

    if (fd < 0)
        return;
    /* The last bytes of a request or an answer must not wait for more. */
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    id = guest_mux_add(&l->mux, xnew0(struct guest_channel), fd);
    guest_conn_queued(&l->conn, guest_put_u32(&l->conn.out, GUEST_CALL_OPEN, id));
}

/* ---- frames from the relay ---- */

static void guest_listen_take_frames(struct guest_listener *l)
{
    struct guest_frame f;
    int r = 1;

    while (r > 0 && !l->conn.gone) {
        struct guest_channel *c = NULL;

        r = guest_conn_next(&l->conn, &f, NULL);
        if (r <= 0)
            break;
        if (guest_mux_take(&l->mux, &f, &c, NULL) < 0)
            r = -ERR_INVALID;
        else if (c && c->over)
            guest_listen_remove_channel(l, c);
    }
    if (r < 0)
        l->conn.gone = true;
}

/* ---- the loop ---- */

/* Sockets without wanted events are not polled, because a hang-up would wake us for ever. */
static size_t guest_listen_fill_polls(struct guest_listener *l, struct pollfd *p)
{
    bool more = l->mux.n < GUEST_MUX_CHANNELS_MAX && l->mux.last < UINT32_MAX &&
                guest_conn_has_room(&l->conn);

    p[POLL_IN] = (struct pollfd){.fd = GUEST_CONN_IN, .events = POLLIN};
    p[POLL_OUT] = (struct pollfd){.fd = GUEST_CONN_OUT, .events = l->conn.out.len ? POLLOUT : 0};
    p[POLL_SOCK] = (struct pollfd){.fd = more ? l->sock : -1, .events = POLLIN};
    for (size_t i = 0; i < l->mux.n; i++) {
        const struct guest_channel *c = l->mux.all[i];
        short events = (short)((guest_channel_wants_read(&l->mux, c) ? POLLIN : 0) |
                               (guest_channel_wants_write(c) ? POLLOUT : 0));

        p[POLL_CHANNELS + i] = (struct pollfd){.fd = events ? c->fd : -1, .events = events};
    }
    return POLL_CHANNELS + l->mux.n;
}

static void guest_listen_serve_channel(struct guest_listener *l, struct guest_channel *c,
                                       const struct pollfd *p)
{
    if (p->events & POLLOUT && p->revents)
        guest_channel_write(&l->mux, c);
    if (!c->over && p->events & POLLIN && p->revents)
        guest_channel_read(&l->mux, c);
    if (c->over)
        guest_listen_remove_channel(l, c);
}

/* From the last one down, because removing one moves the last into its place. */
static void guest_listen_turn(struct guest_listener *l)
{
    struct pollfd polls[POLL_CHANNELS + GUEST_MUX_CHANNELS_MAX];
    size_t n = guest_listen_fill_polls(l, polls);

    if (poll(polls, n, -1) < 0)
        return;
    if (polls[POLL_OUT].revents & (POLLERR | POLLNVAL))
        l->conn.gone = true;
    for (size_t i = n; i-- > POLL_CHANNELS;)
        guest_listen_serve_channel(l, l->mux.all[i - POLL_CHANNELS], &polls[i]);
    if (polls[POLL_SOCK].revents)
        guest_listen_take_connection(l);
    if (polls[POLL_IN].revents && !guest_conn_read(&l->conn))
        l->conn.gone = true;
    guest_listen_take_frames(l);
    l->conn.gone = l->conn.gone || l->mux.choked;
    guest_conn_flush(&l->conn);
}

static void guest_listen_serve(struct guest_listener *l)
{
    guest_conn_queued(&l->conn, guest_put_u32(&l->conn.out, GUEST_STARTED, 0));
    guest_conn_flush(&l->conn);
    while (!l->conn.gone)
        guest_listen_turn(l);
    while (l->mux.n)
        guest_listen_remove_channel(l, l->mux.all[0]);
}

int guest_listen(char **argv, struct err *err)
{
    struct guest_listener l = {.mux.side = GUEST_SIDE_GUEST, .sock = -1};
    _cleanup_err_ struct err why = ERR_INIT;
    uint32_t port = 0;
    int r;

    r = guest_conn_open_async(&l.conn, err);
    if (r < 0)
        return r;
    l.mux.out = &l.conn.out;
    guest_conn_queued(&l.conn, guest_put_hello(&l.conn.out, (uint32_t)getpid()));
    r = parse_u32(argv[0] ? argv[0] : "", 1, UINT16_MAX, &port, &why);
    if (r >= 0)
        r = listen_inside((uint16_t)port, &l.sock, &why);
    if (r >= 0) {
        guest_listen_serve(&l);
    } else {
        guest_conn_queued(&l.conn, guest_put_failed(&l.conn.out, &why));
        guest_conn_flush(&l.conn);
        guest_conn_part(&l.conn);
    }
    fd_close(l.sock);
    guest_conn_done(&l.conn);
    return 0;
}

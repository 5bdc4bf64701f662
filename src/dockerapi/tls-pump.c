/*
 * One thread copies in both directions, with one buffer each. A round copies what is possible
 * without waiting; only after a round that copied nothing does it poll. The thread ends when the
 * user has closed, when both directions have ended, or when TLS breaks. The user then sees the end
 * of the stream. As on a plain socket, the framing inside (lengths, chunks, frames) shows what is
 * missing.
 */
#include "dockerapi/tls-pump.h"

#include <errno.h>
#include <openssl/err.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>

#include "dockerapi/thread.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

enum { PIECE = 16 << 10 }; /* a TLS record is at most 16 KiB */

struct tls_pump_lane {
    char data[PIECE];
    size_t off, len;
    bool ended;    /* the source has ended */
    bool end_sent; /* and the target knows it */
};

struct tls_pump {
    SSL *ssl;
    int sock, user;
    struct tls_pump_lane up, down; /* user to TLS, TLS to user */
    short want;                    /* what TLS waits for on the socket */
    bool broken;
};

static void tls_pump_free(struct tls_pump *p)
{
    fd_close(p->user);
    fd_close(p->sock);
    SSL_free(p->ssl);
    free(p);
}

static void tls_pump_lane_took(struct tls_pump_lane *l, size_t n)
{
    l->off += n;
    l->len -= n;
}

/* Handles a failed SSL call: wait for the socket, the peer has ended properly, or TLS is broken. */
static void tls_pump_failed(struct tls_pump *p, int r)
{
    switch (SSL_get_error(p->ssl, r)) {
    case SSL_ERROR_WANT_READ:
        p->want |= POLLIN;
        return;
    case SSL_ERROR_WANT_WRITE:
        p->want |= POLLOUT;
        return;
    case SSL_ERROR_ZERO_RETURN:
        p->down.ended = true;
        return;
    default:
        p->broken = true;
    }
}

static bool tls_pump_fill_down(struct tls_pump *p)
{
    int n;

    if (p->down.len || p->down.ended)
        return false;
    ERR_clear_error();
    n = SSL_read(p->ssl, p->down.data, PIECE);
    if (n <= 0) {
        tls_pump_failed(p, n);
        return p->down.ended;
    }
    p->down.off = 0;
    p->down.len = (size_t)n;
    return true;
}

static bool tls_pump_drain_down(struct tls_pump *p)
{
    ssize_t n;

    if (p->down.len == 0) {
        if (!p->down.ended || p->down.end_sent)
            return false;
        shutdown(p->user, SHUT_WR);
        return p->down.end_sent = true;
    }
    n = send(p->user, p->down.data + p->down.off, p->down.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
        p->broken |= errno != EAGAIN && errno != EINTR;
        return false;
    }
    tls_pump_lane_took(&p->down, (size_t)n);
    return true;
}

static bool tls_pump_fill_up(struct tls_pump *p)
{
    ssize_t n;

    if (p->up.len || p->up.ended)
        return false;
    n = recv(p->user, p->up.data, PIECE, MSG_DONTWAIT);
    if (n < 0) {
        p->broken |= errno != EAGAIN && errno != EINTR;
        return false;
    }
    p->up.off = 0;
    p->up.len = (size_t)n;
    p->up.ended = n == 0;
    return true;
}

static bool tls_pump_drain_up(struct tls_pump *p)
{
    int n;

    ERR_clear_error();
    if (p->up.len == 0) {
        if (!p->up.ended || p->up.end_sent)
            return false;
        n = SSL_shutdown(p->ssl); /* sends close_notify; 0: the peer has not sent its own yet */
        if (n < 0)
            tls_pump_failed(p, n);
        return p->up.end_sent = n >= 0;
    }
    n = SSL_write(p->ssl, p->up.data + p->up.off, (int)p->up.len);
    if (n <= 0) {
        tls_pump_failed(p, n);
        return false;
    }
    tls_pump_lane_took(&p->up, (size_t)n);
    return true;
}

/* False: the user has closed. The socket is polled only if TLS waits for it: after the peer has
 * hung up, poll(2) would always return at once. */
static bool tls_pump_wait(struct tls_pump *p)
{
    struct pollfd fds[] = {{.fd = p->user}, {.fd = p->want ? p->sock : -1, .events = p->want}};

    if (!p->up.len && !p->up.ended)
        fds[0].events |= POLLIN;
    if (p->down.len)
        fds[0].events |= POLLOUT;
    if (poll(fds, ARRAY_SIZE(fds), -1) < 0)
        return errno == EINTR;
    return !(fds[0].revents & (POLLHUP | POLLERR));
}

static void *tls_pump_main(void *arg)
{
    struct tls_pump *p = arg;

    while (!p->broken && !(p->up.end_sent && p->down.end_sent)) {
        bool moved;

        p->want = 0;
        moved = tls_pump_fill_down(p);
        moved |= tls_pump_drain_down(p);
        moved |= tls_pump_fill_up(p);
        moved |= tls_pump_drain_up(p);
        if (!moved && !p->broken && !tls_pump_wait(p))
            break;
    }
    tls_pump_free(p);
    return NULL;
}

int docker_tls_pump(SSL *ssl, int sock, int *ret, struct err *err)
{
    struct tls_pump *p = xnew0(struct tls_pump);
    int sv[2] = {-1, -1}, r;

    p->ssl = ssl;
    p->sock = sock;
    p->user = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0) {
        r = err_sys(err, errno, "create a socket pair for TLS");
        tls_pump_free(p);
        return r;
    }
    p->user = sv[1];
    r = docker_thread(tls_pump_main, p);
    if (r) {
        fd_close(sv[0]);
        tls_pump_free(p);
        return err_sys(err, r, "start a thread for TLS");
    }
    *ret = sv[0];
    return 0;
}

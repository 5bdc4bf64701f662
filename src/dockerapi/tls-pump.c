/*
 * One thread, two directions, one buffer each: a round moves what can be moved without waiting, and
 * only a round that moved nothing polls. It ends when our user has closed, when both directions are
 * through, or when TLS breaks; the user then sees the end of the stream, and what was cut is found
 * by the framing inside (lengths, chunks, the guest's frames), as on a plain socket.
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

struct lane {
    char data[PIECE];
    size_t off, len;
    bool ended; /* the source has */
    bool told;  /* and the target knows */
};

struct pump {
    SSL *ssl;
    int sock, user;
    struct lane up, down; /* user to TLS, TLS to user */
    short want;           /* what TLS waits for on the socket */
    bool broken;
};

static void tls_pump_free(struct pump *p)
{
    fd_close(p->user);
    fd_close(p->sock);
    SSL_free(p->ssl);
    free(p);
}

static void tls_pump_lane_took(struct lane *l, size_t n)
{
    l->off += n;
    l->len -= n;
}

/* What an SSL call's failure means: wait for the socket, the peer's proper end, or the end of it
 * all. */
static void tls_says(struct pump *p, int r)
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

static bool tls_pump_fill_down(struct pump *p)
{
    int n;

    if (p->down.len || p->down.ended)
        return false;
    ERR_clear_error();
    n = SSL_read(p->ssl, p->down.data, PIECE);
    if (n <= 0) {
        tls_says(p, n);
        return p->down.ended;
    }
    p->down.off = 0;
    p->down.len = (size_t)n;
    return true;
}

static bool tls_pump_drain_down(struct pump *p)
{
    ssize_t n;

    if (p->down.len == 0) {
        if (!p->down.ended || p->down.told)
            return false;
        shutdown(p->user, SHUT_WR);
        return p->down.told = true;
    }
    n = send(p->user, p->down.data + p->down.off, p->down.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0) {
        p->broken |= errno != EAGAIN && errno != EINTR;
        return false;
    }
    tls_pump_lane_took(&p->down, (size_t)n);
    return true;
}

static bool tls_pump_fill_up(struct pump *p)
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

static bool tls_pump_drain_up(struct pump *p)
{
    int n;

    ERR_clear_error();
    if (p->up.len == 0) {
        if (!p->up.ended || p->up.told)
            return false;
        n = SSL_shutdown(p->ssl); /* close_notify; 0: sent, the peer's is still to come */
        if (n < 0)
            tls_says(p, n);
        return p->up.told = n >= 0;
    }
    n = SSL_write(p->ssl, p->up.data + p->up.off, (int)p->up.len);
    if (n <= 0) {
        tls_says(p, n);
        return false;
    }
    tls_pump_lane_took(&p->up, (size_t)n);
    return true;
}

/* False when the user has closed. A socket that TLS waits for nothing from is left out: once the
 * peer has hung up, poll(2) would report that for ever. */
static bool tls_pump_wait_for_news(struct pump *p)
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
    struct pump *p = arg;

    while (!p->broken && !(p->up.told && p->down.told)) {
        bool moved;

        p->want = 0;
        moved = tls_pump_fill_down(p);
        moved |= tls_pump_drain_down(p);
        moved |= tls_pump_fill_up(p);
        moved |= tls_pump_drain_up(p);
        if (!moved && !p->broken && !tls_pump_wait_for_news(p))
            break;
    }
    tls_pump_free(p);
    return NULL;
}

int docker_tls_pump(SSL *ssl, int sock, int *ret, struct err *err)
{
    struct pump *p = xnew0(struct pump);
    int sv[2] = {-1, -1}, r;

    p->ssl = ssl;
    p->sock = sock;
    p->user = -1;
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sv) < 0) {
        r = err_sys(err, errno, "make a socket pair for TLS");
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

/*
 * Accepts connections: checks credentials and limits, and handles a lack of descriptors.
 */
#include "lib/http/server/http-server.h"

#include <errno.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/server/http-conn.h"

enum { ACCEPT_BATCH = 32, REFUSAL_MAX = 4 << 10, KEEPALIVE_SEC = 60 };

/* How often we try again when no descriptor is free, not even for a refusal. */
#define ACCEPT_RETRY (100 * USEC_PER_MSEC)

void server_unref(struct http_server *s)
{
    if (--s->refs == 0)
        free(s);
}

static int http_server_reserve_open(void)
{
    return open("/dev/null", O_RDONLY | O_CLOEXEC);
}

/* Answers without reading. The socket buffer is empty, so one send() is enough. */
static void http_server_refuse(int fd, enum err_code code, const char *why, const char *hint)
{
    _cleanup_buf_ struct buf b = BUF_INIT(REFUSAL_MAX);
    _cleanup_err_ struct err err = ERR_INIT;

    err_set(&err, code, "%s", why);
    err_hint(&err, "%s", hint);
    if (response_error(&b, "", err_code_http(code), &err) >= 0)
        (void)!send(fd, buf_data(&b), b.len, MSG_NOSIGNAL | MSG_DONTWAIT);
    fd_close(fd);
}

/* The kernel stores the credentials at connect(). */
static bool http_server_peer_may(int fd)
{
    struct ucred cred;
    socklen_t len = sizeof(cred);

    if (getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &cred, &len) < 0 || len != sizeof(cred))
        return false;
    return cred.uid == 0 || cred.uid == geteuid();
}

/*
 * TCP_NODELAY: responses are few large writes, and waiting for a full segment only costs time.
 * SO_KEEPALIVE: a machine that disappears sends nothing, and its requests must still end. Both have
 * no effect on unix sockets.
 */
static void http_server_prepare_tcp(int fd)
{
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &(int){1}, sizeof(int));
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &(int){1}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &(int){KEEPALIVE_SEC}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &(int){KEEPALIVE_SEC / 4}, sizeof(int));
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &(int){4}, sizeof(int));
}

static void http_server_take_connection(struct http_server *s, int fd)
{
    if (s->config.turn_away && s->config.turn_away(s->config.turn_away_arg, fd)) {
        fd_close(fd);
    } else if (!s->config.any_peer && !http_server_peer_may(fd)) {
        http_server_refuse(fd, ERR_DENIED, "this socket serves its owner and root only",
                           "Start your own daemon, or run the command as the daemon's user.");
    } else if (s->n_conns >= s->config.connections_max) {
        http_server_refuse(fd, ERR_LIMIT, "too many connections",
                           "Try again when other requests have ended.");
    } else {
        if (s->config.any_peer)
            http_server_prepare_tcp(fd);
        conn_new(s, fd);
    }
}

/*
 * Out of descriptors. A connection in the backlog would wake us again and again, so we close the
 * reserve descriptor, accept the connection and refuse it. If another thread took the free
 * descriptor first, we stop listening for a moment.
 */
static void http_server_survive_emfile(struct http_server *s)
{
    int fd;

    s->reserve_fd = fd_close(s->reserve_fd);
    fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
    if (fd >= 0)
        http_server_refuse(fd, ERR_LIMIT, "the daemon is out of file descriptors",
                           "Raise its limit (ulimit -n), or stop sandboxes.");
    s->reserve_fd = http_server_reserve_open();
    if (s->reserve_fd < 0 || fd < 0) {
        loop_watch_set(s->listen_watch, 0);
        loop_timer_set(s->listen_retry, ACCEPT_RETRY, false);
    }
}

static void http_server_on_retry(void *arg)
{
    struct http_server *s = arg;

    if (s->reserve_fd < 0)
        s->reserve_fd = http_server_reserve_open();
    if (s->listen_watch)
        loop_watch_set(s->listen_watch, LOOP_READ);
}

static void http_server_on_listen(void *arg, int events _unused_)
{
    struct http_server *s = arg;

    /* A handler that is called in this loop may stop accepting. */
    for (int i = 0; i < ACCEPT_BATCH && s->listen_fd >= 0; i++) {
        int fd = accept4(s->listen_fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);

        if (fd >= 0)
            http_server_take_connection(s, fd);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            http_server_survive_emfile(s);
            return;
        } else if (errno != EINTR && errno != ECONNABORTED)
            return;
    }
}

int http_server_new(struct loop *l, const struct http_server_config *config,
                    struct http_server **ret, struct err *err)
{
    struct http_server *s;
    int reserve = http_server_reserve_open();

    if (reserve < 0)
        return err_sys(err, errno, "open '/dev/null'");
    s = xnew0(struct http_server);
    s->loop = l;
    s->config = *config;
    s->refs = 1;
    s->listen_fd = -1;
    s->reserve_fd = reserve;
    s->listen_retry = loop_timer_new(l, http_server_on_retry, s);
    *ret = s;
    return 0;
}

int http_server_listen(struct http_server *s, int listen_fd, struct err *err)
{
    _cleanup_close_ int fd = listen_fd;

    if (s->listen_fd >= 0)
        return err_set(err, ERR_CONFLICT, "the HTTP server is already listening");
    s->listen_watch = loop_watch_new(s->loop, fd, http_server_on_listen, s);
    if (!s->listen_watch)
        return err_set(err, ERR_SYSTEM, "cannot watch the listening socket");
    s->listen_fd = TAKE_FD(fd);
    loop_watch_set(s->listen_watch, LOOP_READ);
    return 0;
}

void http_server_stop_accepting(struct http_server *s)
{
    loop_watch_free(TAKE_PTR(s->listen_watch));
    s->listen_fd = fd_close(s->listen_fd);
    loop_timer_stop(s->listen_retry);
}

void http_server_drop(struct http_server *s)
{
    while (s->conns)
        conn_gone(s->conns);
}

void http_server_free(struct http_server *s)
{
    if (!s)
        return;
    http_server_stop_accepting(s);
    loop_timer_free(s->listen_retry);
    s->reserve_fd = fd_close(s->reserve_fd);
    http_server_drop(s);
    server_unref(s);
}

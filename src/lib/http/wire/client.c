/*
 * Every system call is non-blocking and every wait is a poll() with the deadline; the mode of the
 * descriptor does not matter.
 */
#include "lib/http/wire/client.h"

#include <errno.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include "lib/base/cleanup.h"
#include "lib/base/guard.h"
#include "lib/base/macro.h"
#include "lib/base/xalloc.h"

enum { READ_SIZE = 64 << 10, SEND_HEAD_MAX = 64 << 10 };

/* body_left: the response ends with the connection */
#define UNTIL_CLOSE UINT64_MAX
/* length of a request body: sent in chunks */
#define BODY_IN_PIECES SIZE_MAX

void http_client_init(struct http_client *c, int fd)
{
    *c = (struct http_client){.fd = fd,
                              .in = BUF_INIT(HTTP_HEAD_MAX + READ_SIZE),
                              .by = {DEADLINE_NEVER},
                              .stop_fd = -1,
                              .host = "localhost"};
}

void http_client_done(struct http_client *c)
{
    c->fd = fd_close(c->fd);
    buf_done(&c->in);
    free(c->head_mem);
    c->head_mem = NULL;
    c->head = (struct http_head){0};
}

/* Waits until the socket is ready or broken; the next call on it shows which. */
static int http_client_wait_for(struct http_client *c, short events, struct err *err)
{
    /* poll(2) ignores a negative descriptor */
    struct pollfd p[] = {{.fd = c->fd, .events = events}, {.fd = c->stop_fd, .events = POLLIN}};
    int r;

    do
        r = poll(p, ARRAY_SIZE(p), GUARD("deadlines") ? deadline_ms(&c->by) : -1);
    while (r < 0 && errno == EINTR);
    if (r < 0)
        return err_sys(err, errno, "wait for the HTTP peer");
    if (p[1].revents)
        return err_set(err, ERR_TIMEOUT, "cancelled while waiting for the HTTP peer");
    if (r == 0)
        return err_set(err, ERR_TIMEOUT, "the HTTP peer did not answer in time");
    return 0;
}

/* 1: the peer has answered before the end of our request (usually an error, and it reads no more);
 * 0: it has closed its side without an answer; -1: neither. */
static int http_client_early_answer(struct http_client *c)
{
    char byte;

    return (int)recv(c->fd, &byte, 1, MSG_PEEK | MSG_DONTWAIT);
}

static size_t http_client_iov_left(const struct iovec *iov, size_t count)
{
    size_t sum = 0;

    for (size_t i = 0; i < count; i++)
        sum += iov[i].iov_len;
    return sum;
}

static void http_client_iov_advance(struct iovec *iov, size_t count, size_t n)
{
    for (size_t i = 0; i < count; i++) {
        size_t step = MIN(n, iov[i].iov_len);

        iov[i].iov_base = (char *)iov[i].iov_base + step;
        iov[i].iov_len -= step;
        n -= step;
    }
}

/* 1: all bytes are sent; 0: the peer reads no more and has answered. */
static int http_client_send_all(struct http_client *c, struct iovec *iov, size_t count,
                                struct err *err)
{
    while (http_client_iov_left(iov, count)) {
        struct msghdr msg = {.msg_iov = iov, .msg_iovlen = count};
        ssize_t n = sendmsg(c->fd, &msg, MSG_NOSIGNAL | MSG_DONTWAIT);
        int r;

        if (n >= 0) {
            http_client_iov_advance(iov, count, (size_t)n);
        } else if (errno == EAGAIN) {
            int early = http_client_early_answer(c);

            if (early > 0)
                return 0;
            /* A closed side stays readable: waiting for that too would spin. */
            r = http_client_wait_for(c, early == 0 ? POLLOUT : POLLOUT | POLLIN, err);
            if (r < 0)
                return r;
        } else if (errno != EINTR) {
            int saved = errno;

            if ((saved == EPIPE || saved == ECONNRESET) && http_client_early_answer(c) > 0)
                return 0;
            c->unread = saved == EPIPE || saved == ECONNRESET;
            return err_sys(err, saved, "send the HTTP request");
        }
    }
    return 1;
}

/* Refuses bytes of a caller that could split the head and start a second request. */
static bool http_client_is_line_safe(const char *s, bool blanks)
{
    for (; *s; s++)
        if ((unsigned char)*s < 0x20 || *s == 0x7f || (*s == ' ' && !blanks))
            return false;
    return true;
}

static int http_client_compose_head(struct buf *b, const struct http_client *c, const char *method,
                                    const char *target, const char *extra, const char *content_type,
                                    const void *body, size_t len)
{
    bool chunked = len == BODY_IN_PIECES;
    bool sends_length = !chunked && (body || STREQ(method, "POST") || STREQ(method, "PUT") ||
                                     STREQ(method, "PATCH"));

    if (buf_appendf(b, "%s %s HTTP/1.1\r\nHost: %s\r\n%s", method, target, c->host,
                    extra ? extra : "") < 0 ||
        (c->bearer && buf_appendf(b, "Authorization: Bearer %s\r\n", c->bearer) < 0) ||
        (content_type && buf_appendf(b, "Content-Type: %s\r\n", content_type) < 0) ||
        (sends_length && buf_appendf(b, "Content-Length: %zu\r\n", len) < 0) ||
        (chunked && buf_append_str(b, "Transfer-Encoding: chunked\r\n") < 0))
        return -ERR_LIMIT;
    return buf_append_str(b, "\r\n");
}

static int http_client_send_request(struct http_client *c, const char *method, const char *target,
                                    const char *extra, const char *content_type, const void *body,
                                    size_t len, struct err *err)
{
    _cleanup_buf_ struct buf head = BUF_INIT(SEND_HEAD_MAX);
    struct iovec iov[2];

    if (!http_client_is_line_safe(method, false) || !http_client_is_line_safe(target, false) ||
        !http_client_is_line_safe(c->host, false) ||
        (c->bearer && !http_client_is_line_safe(c->bearer, false)) ||
        (content_type && !http_client_is_line_safe(content_type, true)))
        return err_set(err, ERR_INVALID, "blank or control byte in an HTTP request line");
    if (c->body_left || (c->head.chunked && !c->chunked.done))
        return err_set(err, ERR_CONFLICT, "HTTP request before the end of the last response");
    if (http_client_compose_head(&head, c, method, target, extra, content_type, body, len) < 0)
        return err_set(err, ERR_LIMIT, "HTTP request head is larger than %d bytes", SEND_HEAD_MAX);
    c->is_head = STREQ(method, "HEAD");
    c->unread = false;
    iov[0] = (struct iovec){buf_data(&head), head.len};
    iov[1] = (struct iovec){(void *)body, body ? len : 0};
    return http_client_send_all(c, iov, ARRAY_SIZE(iov), err);
}

int http_client_send(struct http_client *c, const char *method, const char *target,
                     const char *extra, const char *content_type, const void *body, size_t len,
                     struct err *err)
{
    int r = http_client_send_request(c, method, target, extra, content_type, body, len, err);

    return MIN(r, 0); /* the caller reads an early answer like any other */
}

int http_client_begin(struct http_client *c, const char *method, const char *target,
                      const char *content_type, struct err *err)
{
    int r =
        http_client_send_request(c, method, target, NULL, content_type, NULL, BODY_IN_PIECES, err);

    return MIN(r, 0);
}

int http_client_put(struct http_client *c, const void *data, size_t len, struct err *err)
{
    char size[32];
    struct iovec iov[3] = {{size, 0}, {(void *)data, len}, {(char *)"\r\n", 2}};

    if (http_client_early_answer(c) > 0)
        return 0;
    iov[0].iov_len = (size_t)snprintf(size, sizeof(size), "%zx\r\n", len);
    return http_client_send_all(c, iov, ARRAY_SIZE(iov), err);
}

/* Bytes from the socket; 0 at its end. */
static ssize_t http_client_receive(struct http_client *c, void *data, size_t len, struct err *err)
{
    for (;;) {
        ssize_t n = recv(c->fd, data, len, MSG_DONTWAIT);
        int r;

        if (n >= 0)
            return n;
        if (errno == EINTR)
            continue;
        if (errno != EAGAIN) {
            /* The kernel reports this when the peer closed before it had read all that we sent. */
            c->unread = errno == ECONNRESET && !c->in.len;
            return err_sys(err, errno, "read the HTTP response");
        }
        r = http_client_wait_for(c, POLLIN, err);
        if (r < 0)
            return r;
    }
}

/* Reads more bytes into c->in; the end of the connection is an error. */
static int http_client_fill(struct http_client *c, struct err *err)
{
    char *p = buf_reserve(&c->in, READ_SIZE);
    ssize_t n;

    if (!p)
        return err_set(err, ERR_LIMIT, "HTTP response head is larger than %d bytes", HTTP_HEAD_MAX);
    n = http_client_receive(c, p, READ_SIZE, err);
    if (n < 0)
        return (int)n;
    if (n == 0) {
        err_sys(err, ECONNRESET, "read the HTTP response");
        return err_hint(err, "The peer closed the connection early; its log may say why.");
    }
    buf_commit(&c->in, (size_t)n);
    return 0;
}

static int http_client_read_head(struct http_client *c, struct err *err)
{
    size_t scanned = 0;
    ssize_t n;
    int r;

    while ((n = http_head_find(buf_data(&c->in), c->in.len, &scanned, err)) == 0) {
        r = http_client_fill(c, err);
        if (r < 0)
            return r;
    }
    if (n < 0)
        return err_wrap(err, "HTTP response");
    free(c->head_mem);
    c->head = (struct http_head){0};
    c->head_mem = xmemdup(buf_data(&c->in), (size_t)n);
    buf_consume(&c->in, (size_t)n);
    r = http_parse_response(c->head_mem, (size_t)n, &c->head, err);
    return r < 0 ? err_wrap(err, "HTTP response") : 0;
}

int http_client_head(struct http_client *c, struct err *err)
{
    bool bodiless;
    int r;

    do {
        r = http_client_read_head(c, err);
        if (r < 0)
            return r;
    } while (c->head.status < 200 && c->head.status != 101);

    bodiless =
        c->is_head || c->head.status == 101 || c->head.status == 204 || c->head.status == 304;
    c->chunked = (struct http_chunked)HTTP_CHUNKED_INIT;
    if (bodiless)
        c->head.chunked = false;
    if (bodiless || c->head.chunked)
        c->body_left = 0;
    else
        c->body_left = c->head.has_length ? c->head.length : UNTIL_CLOSE;
    return 0;
}

static ssize_t http_client_read_chunked(struct http_client *c, void *data, size_t len,
                                        struct err *err)
{
    size_t used, off, n;
    int r;

    while (!c->chunked.done) {
        const char *in = buf_data(&c->in);

        /* At most as many bytes as the caller has room for: decoded bytes cannot be put back. */
        r = http_chunked_decode(&c->chunked, in, MIN(c->in.len, len), &used, &off, &n, err);
        if (r < 0)
            return err_wrap(err, "HTTP response");
        if (n)
            memcpy(data, in + off, n);
        buf_consume(&c->in, used);
        if (n)
            return (ssize_t)n;
        if (used == 0) {
            r = http_client_fill(c, err);
            if (r < 0)
                return r;
        }
    }
    return 0;
}

static ssize_t http_client_read_plain(struct http_client *c, void *data, size_t len,
                                      struct err *err)
{
    size_t want = (size_t)MIN((uint64_t)len, c->body_left);
    ssize_t n;

    if (c->in.len) {
        n = (ssize_t)MIN(want, c->in.len);
        memcpy(data, buf_data(&c->in), (size_t)n);
        buf_consume(&c->in, (size_t)n);
    } else {
        n = http_client_receive(c, data, want, err);
    }
    if (n < 0)
        return n;
    if (c->body_left == UNTIL_CLOSE) {
        if (n == 0)
            c->body_left = 0;
        return n;
    }
    if (n == 0)
        return err_set(err, ERR_SYSTEM, "HTTP response is truncated: %llu bytes are missing",
                       (unsigned long long)c->body_left);
    c->body_left -= (uint64_t)n;
    return n;
}

ssize_t http_client_read(struct http_client *c, void *data, size_t len, struct err *err)
{
    if (len == 0)
        return 0;
    if (c->head.chunked)
        return http_client_read_chunked(c, data, len, err);
    return c->body_left ? http_client_read_plain(c, data, len, err) : 0;
}

int http_client_body(struct http_client *c, size_t max, struct buf *ret, struct err *err)
{
    _cleanup_buf_ struct buf b = BUF_INIT(max);

    for (;;) {
        char piece[16 << 10];
        ssize_t n = http_client_read(c, piece, sizeof(piece), err);

        if (n < 0)
            return (int)n;
        if (n == 0)
            break;
        if (buf_append(&b, piece, (size_t)n) < 0)
            return err_set(err, ERR_LIMIT, "HTTP response body is larger than %zu bytes", max);
    }
    buf_done(ret);
    *ret = b;
    b = (struct buf)BUF_INIT(0);
    return 0;
}

int http_client_upgraded(struct http_client *c, struct buf *early)
{
    if (c->in.len && buf_append(early, buf_data(&c->in), c->in.len) < 0)
        return -ERR_LIMIT;
    buf_done(&c->in);
    return TAKE_FD(c->fd);
}

#include "scripted-engine.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

#define MUST(cond)                                                                                 \
    do {                                                                                           \
        if (!(cond)) {                                                                             \
            fprintf(stderr, "%s:%d: %s\n", __FILE__, __LINE__, #cond);                             \
            abort();                                                                               \
        }                                                                                          \
    } while (0)

struct conn {
    int fd;
    SSL *ssl;
};

/* Waits until the descriptor is ready. False: the test has ended. */
static bool wait_ready(struct fake *f, struct conn *c, short events)
{
    struct pollfd p[] = {{.fd = c->fd, .events = events}, {.fd = f->stop[0], .events = POLLIN}};

    if (c->ssl && SSL_pending(c->ssl))
        return true;
    return poll(p, 2, 20000) > 0 && !p[1].revents;
}

static ssize_t take(struct fake *f, struct conn *c, char *data, size_t len)
{
    if (!wait_ready(f, c, POLLIN))
        return -1;
    return c->ssl ? SSL_read(c->ssl, data, (int)len) : recv(c->fd, data, len, 0);
}

static void give(struct fake *f, struct conn *c, const char *data, size_t len)
{
    while (len && wait_ready(f, c, POLLOUT)) {
        ssize_t n = c->ssl ? SSL_write(c->ssl, data, (int)len)
                           : send(c->fd, data, len, MSG_NOSIGNAL | MSG_DONTWAIT);

        if (n <= 0)
            return;
        data += n;
        len -= (size_t)n;
    }
}

static void note(struct fake *f, const char *data, size_t len)
{
    pthread_mutex_lock(&f->lock);
    (void)!buf_append(&f->seen, data, len);
    pthread_mutex_unlock(&f->lock);
}

/* The number of body bytes that are missing; `have` bytes are there. */
static bool body_is_whole(const char *head, size_t head_len, size_t have)
{
    const char *length = strcasestr(head, "Content-Length: ");
    const char *body = head + head_len;

    if (strcasestr(head, "Transfer-Encoding: chunked"))
        return have >= 5 && memcmp(body + have - 5, "0\r\n\r\n", 5) == 0;
    return !length || have >= strtoul(length + strlen("Content-Length: "), NULL, 10);
}

static void read_request(struct fake *f, struct conn *c, bool whole)
{
    struct buf b = BUF_INIT(MIB(64));
    char piece[4096], *end;

    for (;;) {
        ssize_t n = take(f, c, piece, sizeof(piece));

        if (n <= 0)
            break;
        note(f, piece, (size_t)n);
        MUST(buf_append(&b, piece, (size_t)n) >= 0);
        end = strstr(buf_data(&b), "\r\n\r\n");
        if (!end)
            continue;
        size_t head_len = (size_t)(end + 4 - buf_data(&b));
        if (!whole || body_is_whole(buf_data(&b), head_len, b.len - head_len))
            break;
    }
    buf_done(&b);
}

static void echo(struct fake *f, struct conn *c)
{
    char piece[4096];
    ssize_t n;

    while ((n = take(f, c, piece, sizeof(piece))) > 0)
        give(f, c, piece, (size_t)n);
    if (n == 0)
        give(f, c, "<eof>", 5);
}

static void conn_close(struct conn *c)
{
    if (c->ssl)
        SSL_shutdown(c->ssl);
    SSL_free(c->ssl);
    fd_close(c->fd);
}

static void play(struct fake *f, struct conn *c, const struct act *a)
{
    read_request(f, c, a->kind != ACT_EARLY && a->kind != ACT_DEAF);
    give(f, c, a->bytes, a->len ? a->len : strlen(a->bytes));
    if (a->kind == ACT_ECHO)
        echo(f, c);
    if ((a->kind == ACT_STAY || a->kind == ACT_DEAF) && f->n_held < 8)
        f->held[f->n_held++] = dup(c->fd);
    conn_close(c);
}

static bool shake_hands(struct fake *f, struct conn *c)
{
    if (!f->tls)
        return true;
    c->ssl = SSL_new(f->tls);
    SSL_set_fd(c->ssl, c->fd);
    return SSL_accept(c->ssl) == 1;
}

static void *fake_main(void *arg)
{
    struct fake *f = arg;
    size_t next = 0;

    for (;;) {
        struct pollfd p[] = {{.fd = f->listener, .events = POLLIN},
                             {.fd = f->stop[0], .events = POLLIN}};
        struct conn c = {.fd = -1};

        if (poll(p, 2, -1) < 0 || p[1].revents)
            return NULL;
        c.fd = accept4(f->listener, NULL, NULL, SOCK_CLOEXEC);
        if (c.fd >= 0 && shake_hands(f, &c) && next < f->n)
            play(f, &c, &f->acts[next++]);
        else
            conn_close(&c);
    }
}

static void start(struct fake *f, const struct act *acts, size_t n)
{
    sigset_t pipe;

    /* SSL_write() raises SIGPIPE when a client has disconnected. */
    sigemptyset(&pipe);
    sigaddset(&pipe, SIGPIPE);
    pthread_sigmask(SIG_BLOCK, &pipe, NULL);
    f->acts = acts;
    f->n = n;
    f->seen = (struct buf)BUF_INIT(MIB(64));
    pthread_mutex_init(&f->lock, NULL);
    MUST(pipe2(f->stop, O_CLOEXEC) == 0);
    MUST(pthread_create(&f->thread, NULL, fake_main, f) == 0);
}

static void listen_tcp(struct fake *f)
{
    struct sockaddr_in a = {.sin_family = AF_INET, .sin_addr = {htonl(INADDR_LOOPBACK)}};
    socklen_t len = sizeof(a);

    f->listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    MUST(bind(f->listener, (struct sockaddr *)&a, sizeof(a)) == 0);
    MUST(listen(f->listener, 16) == 0);
    MUST(getsockname(f->listener, (struct sockaddr *)&a, &len) == 0);
    f->endpoint = (struct docker_endpoint){
        .transport = DOCKER_TCP, .host = xstrdup("127.0.0.1"), .port = ntohs(a.sin_port)};
}

void fake_start(struct fake *f, const char *folder, const struct act *acts, size_t n)
{
    *f = (struct fake){.listener = -1};
    if (!folder) {
        listen_tcp(f);
    } else {
        _cleanup_close_ int dirfd = open(folder, O_PATH | O_DIRECTORY | O_CLOEXEC);

        MUST(unix_listen(dirfd, "engine.sock", SOCK_STREAM, 0600, &f->listener, NULL) >= 0);
        f->endpoint = (struct docker_endpoint){.transport = DOCKER_UNIX,
                                               .path = xasprintf("%s/engine.sock", folder)};
    }
    start(f, acts, n);
}

void fake_start_tls(struct fake *f, const char *folder, const char *client_ca,
                    const struct act *acts, size_t n)
{
    _cleanup_free_ char *cert = xasprintf("%s/server.pem", folder);
    _cleanup_free_ char *key = xasprintf("%s/server-key.pem", folder);
    SSL_CTX *ctx = SSL_CTX_new(TLS_server_method());

    *f = (struct fake){.listener = -1, .tls = ctx};
    listen_tcp(f);
    docker_endpoint_use_tls(&f->endpoint, folder);
    MUST(SSL_CTX_use_certificate_file(ctx, cert, SSL_FILETYPE_PEM) == 1);
    MUST(SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) == 1);
    if (client_ca) {
        MUST(SSL_CTX_load_verify_file(ctx, client_ca) == 1);
        SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, NULL);
    }
    start(f, acts, n);
}

void fake_stop(struct fake *f)
{
    fd_close(f->stop[1]);
    pthread_join(f->thread, NULL);
    fd_close(f->stop[0]);
    fd_close(f->listener);
    for (size_t i = 0; i < f->n_held; i++)
        fd_close(f->held[i]);
    if (f->endpoint.path)
        unlink(f->endpoint.path);
    SSL_CTX_free(f->tls);
    docker_endpoint_done(&f->endpoint);
    buf_done(&f->seen);
    pthread_mutex_destroy(&f->lock);
}

bool fake_saw(struct fake *f, const char *text)
{
    bool found;

    pthread_mutex_lock(&f->lock);
    found = strstr(buf_data(&f->seen), text);
    pthread_mutex_unlock(&f->lock);
    return found;
}

/*
 * OpenSSL's socket BIO uses write(2), which can raise SIGPIPE in any thread. This file therefore
 * has its own small BIO that uses send(MSG_NOSIGNAL).
 */
#include "dockerapi/net.h"

#include <arpa/inet.h>
#include <errno.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <poll.h>
#include <pthread.h>
#include <string.h>
#include <sys/socket.h>

#include "dockerapi/tls-pump.h"
#include "lib/base/cleanup.h"
#include "lib/base/fd.h"
#include "lib/base/xalloc.h"

DEFINE_CLEANUP(SSL *, SSL_free);
DEFINE_CLEANUP(SSL_CTX *, SSL_CTX_free);

/* ---- the BIO ---- */

static int tls_bio_result(BIO *b, ssize_t n, int retry)
{
    BIO_clear_retry_flags(b);
    if (n < 0 && (errno == EAGAIN || errno == EINTR))
        BIO_set_flags(b, retry | BIO_FLAGS_SHOULD_RETRY);
    return (int)n;
}

static int tls_bio_write(BIO *b, const char *data, int len)
{
    ssize_t n = send((int)(intptr_t)BIO_get_data(b), data, (size_t)len, MSG_NOSIGNAL);

    return tls_bio_result(b, n, BIO_FLAGS_WRITE);
}

static int tls_bio_read(BIO *b, char *data, int len)
{
    ssize_t n = recv((int)(intptr_t)BIO_get_data(b), data, (size_t)len, 0);

    return tls_bio_result(b, n, BIO_FLAGS_READ);
}

static long tls_bio_ctrl(BIO *b, int cmd, long num, void *ptr)
{
    (void)b;
    (void)num;
    (void)ptr;
    return cmd == BIO_CTRL_FLUSH; /* nothing is buffered here */
}

static BIO_METHOD *bio_method;

static void tls_make_bio_method(void)
{
    bio_method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "ripcord socket");
    if (!bio_method)
        return;
    BIO_meth_set_write(bio_method, tls_bio_write);
    BIO_meth_set_read(bio_method, tls_bio_read);
    BIO_meth_set_ctrl(bio_method, tls_bio_ctrl);
}

static BIO *tls_bio_new(int fd)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    BIO *b;

    pthread_once(&once, tls_make_bio_method);
    b = bio_method ? BIO_new(bio_method) : NULL;
    if (b) {
        BIO_set_data(b, (void *)(intptr_t)fd);
        BIO_set_init(b, 1);
    }
    return b;
}

/* ---- errors ---- */

/* OpenSSL's last error as text. Clears the error queue of this thread. */
static const char *tls_last_error(char *text, size_t size)
{
    unsigned long code = ERR_peek_last_error();
    const char *reason = code ? ERR_reason_error_string(code) : NULL;

    snprintf(text, size, "%s", reason ? reason : "unknown TLS error");
    ERR_clear_error();
    return text;
}

static int tls_broken(struct err *err, const char *what)
{
    char text[256];

    return err_set(err, ERR_SYSTEM, "%s: %s", what, tls_last_error(text, sizeof(text)));
}

/* ---- certificates ---- */

static int tls_file_failed(const char *path, struct err *err)
{
    char text[256];

    err_set(err, ERR_ENGINE, "TLS to the engine: cannot use '%s': %s", path,
            tls_last_error(text, sizeof(text)));
    return err_hint(err, "Put ca.pem, and cert.pem with its key.pem, into the folder "
                         "(DOCKER_CERT_PATH), in PEM format.");
}

static int tls_load_own(SSL_CTX *ctx, const char *folder, struct err *err)
{
    _cleanup_free_ char *cert = xasprintf("%s/cert.pem", folder);
    _cleanup_free_ char *key = xasprintf("%s/key.pem", folder);

    /* Engines may work without client certificates. A certificate without key is a mistake. */
    if (access(cert, F_OK) < 0 && access(key, F_OK) < 0)
        return 0;
    if (SSL_CTX_use_certificate_chain_file(ctx, cert) != 1)
        return tls_file_failed(cert, err);
    if (SSL_CTX_use_PrivateKey_file(ctx, key, SSL_FILETYPE_PEM) != 1 ||
        SSL_CTX_check_private_key(ctx) != 1)
        return tls_file_failed(key, err);
    return 0;
}

/* A key with a pass phrase fails, instead of asking on a terminal. */
static int tls_no_pass_phrase(char *text, int size, int writing, void *arg)
{
    (void)text;
    (void)size;
    (void)writing;
    (void)arg;
    return 0;
}

int docker_tls_new(const struct docker_endpoint *e, void **ret, struct err *err)
{
    _cleanup_(SSL_CTX_freep) SSL_CTX *ctx = SSL_CTX_new(TLS_client_method());
    _cleanup_free_ char *ca = xasprintf("%s/ca.pem", e->certs ? e->certs : "");
    int r;

    if (!ctx)
        return tls_broken(err, "set up TLS");
    if (!e->certs) {
        err_set(err, ERR_INVALID, "TLS to the engine: the folder of the certificates is not set");
        return err_hint(err, "Set DOCKER_CERT_PATH, or use tls://host:2376?certs=/folder.");
    }
    SSL_CTX_set_min_proto_version(ctx, TLS1_2_VERSION);
    SSL_CTX_set_verify(ctx, SSL_VERIFY_PEER, NULL);
    SSL_CTX_set_default_passwd_cb(ctx, tls_no_pass_phrase);
    SSL_CTX_set_mode(ctx, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                              SSL_MODE_RELEASE_BUFFERS);
    if (SSL_CTX_load_verify_file(ctx, ca) != 1)
        return tls_file_failed(ca, err);
    r = tls_load_own(ctx, e->certs, err);
    if (r < 0)
        return r;
    *ret = TAKE_PTR(ctx);
    return 0;
}

void docker_tls_free(void *tls)
{
    SSL_CTX_free(tls);
}

/* ---- handshake ---- */

static int tls_expect_host(SSL *ssl, const char *host)
{
    struct in6_addr any;

    if (inet_pton(AF_INET, host, &any) == 1 || inet_pton(AF_INET6, host, &any) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host);
    SSL_set_hostflags(ssl, X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static int tls_refused(SSL *ssl, const struct docker_endpoint *e, struct err *err)
{
    long verdict = SSL_get_verify_result(ssl);
    char text[256];

    if (verdict != X509_V_OK) {
        ERR_clear_error();
        err_set(err, ERR_DENIED, "engine at %s:%u: its certificate is not accepted (%s)", e->host,
                e->port, X509_verify_cert_error_string(verdict));
        return err_hint(err, "Use a certificate that '%s/ca.pem' has signed and that names '%s'.",
                        e->certs, e->host);
    }
    err_set(err, ERR_ENGINE, "engine at %s:%u: TLS handshake failed (%s)", e->host, e->port,
            tls_last_error(text, sizeof(text)));
    return err_hint(err,
                    "Check that the port uses TLS (usually 2376, not 2375), and that the engine "
                    "accepts '%s/cert.pem'.",
                    e->certs);
}

static int tls_handshake(SSL *ssl, int fd, const struct docker_endpoint *e,
                         const struct deadline *by, struct err *err)
{
    for (;;) {
        int r = SSL_connect(ssl), why = SSL_get_error(ssl, r);
        struct pollfd p = {.fd = fd, .events = why == SSL_ERROR_WANT_WRITE ? POLLOUT : POLLIN};

        if (r == 1)
            return 0;
        if (why != SSL_ERROR_WANT_READ && why != SSL_ERROR_WANT_WRITE)
            return tls_refused(ssl, e, err);
        r = poll(&p, 1, deadline_ms(by));
        if (r == 0)
            return err_set(err, ERR_TIMEOUT, "engine at %s:%u: timed out in the TLS handshake",
                           e->host, e->port);
        if (r < 0 && errno != EINTR)
            return err_sys(err, errno, "wait for the engine");
    }
}

int docker_tls_wrap(void *tls, const struct docker_endpoint *e, int raw, const struct deadline *by,
                    int *ret, struct err *err)
{
    _cleanup_close_ int fd = raw;
    _cleanup_(SSL_freep) SSL *ssl = SSL_new(tls);
    BIO *bio = ssl ? tls_bio_new(fd) : NULL;
    int r;

    if (!bio)
        return tls_broken(err, "set up TLS");
    SSL_set_bio(ssl, bio, bio);
    if (tls_expect_host(ssl, e->host) != 1)
        return tls_broken(err, "set up TLS");
    r = tls_handshake(ssl, fd, e, by, err);
    if (r < 0)
        return r;
    return docker_tls_pump(TAKE_PTR(ssl), TAKE_FD(fd), ret, err);
}

/*
 * Opening an engine takes one request. The unversioned ping always works, and its head has the
 * highest API version and the flavour. If we do not support that version, a second ping with our
 * own version prefix checks that the engine still accepts it; otherwise the first create would
 * fail. (/version has more details, but on Podman it calls the package manager and takes a second.)
 */
#include "dockerapi/docker.h"

#include <stdlib.h>
#include <string.h>

#include "dockerapi/call.h"
#include "dockerapi/error-classes.h"
#include "dockerapi/net.h"
#include "lib/base/parse.h"
#include "lib/base/xalloc.h"

void docker_close(struct docker *d)
{
    if (!d)
        return;
    docker_tls_free(d->tls);
    docker_endpoint_done(&d->endpoint);
    free(d->where);
    free(d->version);
    free(d);
}

static char *docker_dup_or_null(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

static int docker_new(const struct docker_endpoint *e, struct docker **ret, struct err *err)
{
    _cleanup_(docker_closep) struct docker *d = xnew0(struct docker);
    int r;

    d->endpoint = (struct docker_endpoint){
        .transport = e->transport,
        .path = docker_dup_or_null(e->path),
        .host = docker_dup_or_null(e->host),
        .port = e->port,
        .certs = docker_dup_or_null(e->certs),
    };
    d->where = docker_endpoint_text(e);
    d->version = xstrdup("");
    if (e->transport == DOCKER_TLS) {
        r = docker_tls_new(e, &d->tls, err);
        if (r < 0)
            return r;
    }
    *ret = TAKE_PTR(d);
    return 0;
}

static int docker_not_an_engine(const struct docker *d, const char *what, struct err *err)
{
    err_set(err, ERR_ENGINE, "server at %s: not a Docker or Podman engine (%s)", d->where, what);
    return err_hint(err, "Check DOCKER_HOST. The usual socket is /var/run/docker.sock.");
}

/* "Docker/20.10.24 (linux)", "Libpod/4.3.1 (linux)" */
static char *docker_version_of(const struct http_head *head)
{
    const char *server = http_field_get(head, "Server");
    const char *slash = server ? strchr(server, '/') : NULL;

    return slash ? docker_words(slash + 1, strcspn(slash + 1, " ")) : xstrdup("");
}

/* Takes flavour and versions from the head of the ping. */
static int docker_negotiate(struct docker *d, const struct http_head *head, struct err *err)
{
    const char *api = http_field_get(head, "Api-Version");
    uint32_t minor;

    if (http_field_get(head, "Libpod-Api-Version"))
        d->flavour = DOCKER_FLAVOUR_PODMAN;
    if (!api)
        return docker_not_an_engine(d, "the ping has no API version", err);
    /* "1.41" is 41. Other major versions do not exist yet. */
    if (strncmp(api, "1.", 2) != 0 || parse_u32(api + 2, 0, 999, &minor, NULL) < 0)
        return docker_not_an_engine(d, "the API version does not have the form 1.N", err);
    d->engine_api = minor;
    free(d->version);
    d->version = docker_version_of(head);
    d->api = MIN(d->engine_api, (unsigned)DOCKER_API_MAX);
    if (d->api >= DOCKER_API_MIN)
        return 0;
    return docker_reason_err(
        DOCKER_BAD_VERSION, err, "%s engine at %s: API 1.%u is too old (at least 1.%u is needed)",
        docker_flavour_name(d->flavour), d->where, d->engine_api, DOCKER_API_MIN);
}

static int docker_ping(struct docker *d, const struct deadline *by, struct err *err)
{
    _cleanup_exchange_ struct exchange x = EXCHANGE_INIT;
    _cleanup_err_ struct err own = ERR_INIT;
    int r;

    r = exchange_ask(&x, d, "GET", "/_ping", NULL, by, &own);
    if (r < 0)
        return err_move(err, &own);
    if (x.http.head.status != 200)
        return docker_not_an_engine(d, "the status of the ping is not 200", err);
    return docker_negotiate(d, &x.http.head, err);
}

int docker_open(const struct docker_endpoint *endpoint, const struct deadline *by,
                struct docker **ret, struct err *err)
{
    _cleanup_(docker_closep) struct docker *d = NULL;
    int r;

    r = docker_new(endpoint, &d, err);
    if (r < 0)
        return r;
    r = docker_ping(d, by, err);
    if (r < 0)
        return r;
    if (d->api < d->engine_api) {
        r = docker_call(d, "GET", "/_ping", NULL, by, NULL, err);
        if (r < 0)
            return err ? err_wrap(err, "engine at %s", d->where) : r;
    }
    *ret = TAKE_PTR(d);
    return 0;
}

int docker_open_known(const struct docker_endpoint *endpoint, enum docker_flavour flavour,
                      unsigned api, struct docker **ret, struct err *err)
{
    _cleanup_(docker_closep) struct docker *d = NULL;
    int r;

    if (api < DOCKER_API_MIN || api > DOCKER_API_MAX)
        return err_set(err, ERR_INVALID, "API version 1.%u: not supported", api);
    r = docker_new(endpoint, &d, err);
    if (r < 0)
        return r;
    d->flavour = flavour;
    d->api = d->engine_api = api;
    *ret = TAKE_PTR(d);
    return 0;
}

/* ---- paths ---- */

/* Appending cannot fail: the input is already in memory. A path that is too long is refused when
 * the request is sent. */
static void docker_append(struct buf *b, const char *s, size_t len)
{
    if (buf_append(b, s, len) < 0)
        abort();
}

static void docker_append_encoded(struct buf *b, const char *s)
{
    static const char plain[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz"
                                "0123456789-._~";

    for (; *s; s++) {
        char hex[4];

        snprintf(hex, sizeof(hex), "%%%02X", (unsigned char)*s);
        if (strchr(plain, *s))
            docker_append(b, s, 1);
        else
            docker_append(b, hex, 3);
    }
}

static void docker_append_number(struct buf *b, long long n)
{
    char text[24];

    docker_append(b, text, (size_t)snprintf(text, sizeof(text), "%lld", n));
}

char *docker_path(const char *fmt, ...)
{
    struct buf b = BUF_INIT(SIZE_MAX / 2);
    va_list ap;

    va_start(ap, fmt);
    for (const char *p = fmt; *p; p++) {
        if (*p != '%')
            docker_append(&b, p, 1);
        else if (*++p == 's')
            docker_append_encoded(&b, va_arg(ap, const char *));
        else if (*p == 'd')
            docker_append_number(&b, va_arg(ap, int));
        else if (*p == 'u')
            docker_append_number(&b, va_arg(ap, unsigned));
        else
            abort(); /* our bug: docker.h does not allow this format */
    }
    va_end(ap);
    return buf_steal(&b);
}

#include "image/transfer/repository.h"

#include <openssl/evp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "image/oci/reference.h"
#include "image/transfer/challenge.h"
#include "lib/base/cleanup.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "version.h"

enum { TOKEN_ANSWER_MAX = 256 << 10, PROBE_MAX = 64 << 10, URL_MAX = 8 << 10 };

#define CONNECT_TIMEOUT (15 * USEC_PER_SEC)
#define STALL_TIMEOUT (30 * USEC_PER_SEC)
#define ANSWER_TIMEOUT (120 * USEC_PER_SEC)
#define DOCKER_REGISTRY "docker.io"
#define DOCKER_ADDRESS "registry-1.docker.io"

struct repository {
    const struct settings *settings;
    char *base;                  /* owned: "https://host[:port]" */
    char *host;                  /* owned: "host:port" */
    char *registry, *repository; /* owned */
    struct fetcher *fetcher;     /* owned */
    bool push, http;
    char *basic;          /* owned: the Authorization header with the user's password, or NULL */
    pthread_mutex_t lock; /* protects the next field */
    char *authorization;  /* owned: the current Authorization header, or NULL */
};

/* ---- names ---- */

static bool repository_is_registry(const char *part, size_t len)
{
    return memchr(part, '.', len) || memchr(part, ':', len) ||
           (len == 9 && strncmp(part, "localhost", 9) == 0);
}

int repository_name_parse(const char *name, struct repository_name *ret, struct err *err)
{
    _cleanup_free_ char *ref = NULL;
    const char *slash, *path, *tag;
    int r = reference_parse(name, &ref, err);

    if (r < 0)
        return r;
    slash = strchr(ref, '/');
    path = slash && repository_is_registry(ref, (size_t)(slash - ref)) ? slash + 1 : ref;
    tag = strrchr(path, ':'); /* it always has one */
    if (!tag || tag == path)
        return err_set(err, ERR_INVALID, "'%.100s' is not the name of an image in a registry",
                       name);
    ret->registry = path == ref ? xstrdup(DOCKER_REGISTRY) : xstrndup(ref, (size_t)(slash - ref));
    ret->repository =
        xasprintf("%s%.*s", path == ref && !slash ? "library/" : "", (int)(tag - path), path);
    ret->tag = xstrdup(tag + 1);
    return 0;
}

void repository_name_done(struct repository_name *n)
{
    free(n->registry);
    free(n->repository);
    free(n->tag);
    *n = (struct repository_name){0};
}

/* "localhost:5000", "127.0.0.1:5000" */
static bool repository_is_loopback(const char *registry)
{
    size_t len = strcspn(registry, ":");

    return (len == 9 && strncmp(registry, "localhost", 9) == 0) ||
           (strncmp(registry, "127.", 4) == 0 && strspn(registry, "0123456789.") >= len);
}

/* ---- construction ---- */

static char *repository_basic_of(const struct settings *s)
{
    _cleanup_free_ char *plain = NULL, *b64 = NULL;
    size_t len;

    if (!s->username)
        return NULL;
    plain = xasprintf("%s:%s", s->username, s->password ? s->password : "");
    len = strlen(plain);
    b64 = xmalloc(4 * ((len + 2) / 3) + 1);
    EVP_EncodeBlock((unsigned char *)b64, (const unsigned char *)plain, (int)len);
    return xasprintf("Basic %s", b64);
}

struct fetcher *repository_fetcher(const struct settings *s, const struct fetcher_config *rules)
{
    struct fetcher_config c = *rules;

    c.ca_pem = s->ca_pem;
    c.connect_timeout = CONNECT_TIMEOUT;
    c.stall_timeout = STALL_TIMEOUT;
    c.user_agent = "ripcord/" RIPCORD_VERSION;
    return fetcher_new(&c);
}

/* A fetcher for one host. */
static struct fetcher *repository_fetcher_for(const struct settings *s, const char *host,
                                              bool private_ok, bool http)
{
    char *hosts[] = {(char *)host, NULL};

    return repository_fetcher(
        s, &(struct fetcher_config){.hosts = hosts, .private_ok = private_ok, .http_ok = http});
}

static int repository_set_base(struct repository *r, const char *base, struct err *err)
{
    size_t len = strlen(base);

    fetcher_free(TAKE_PTR(r->fetcher));
    free(r->base);
    free(r->host);
    r->base = xstrndup(base, len - (len && base[len - 1] == '/'));
    r->host = fetch_url_host(base);
    r->http = strncmp(base, "http://", 7) == 0;
    if (!r->host)
        return err_set(err, ERR_INVALID, "'%.200s' is not the URL of a registry", base);
    r->fetcher = repository_fetcher_for(r->settings, r->host, true, r->http);
    return 0;
}

static int repository_discard(void *arg _unused_, const char *data _unused_, size_t len _unused_,
                              struct err *err _unused_)
{
    return 0;
}

/* A registry on this machine often has no certificate: tries TLS first, then plain HTTP. */
static int repository_probe_loopback(struct repository *r, struct err *err)
{
    _cleanup_free_ char *url = xasprintf("%s/v2/", r->base), *plain = NULL;
    const struct fetch f = {.url = url,
                            .size_max = PROBE_MAX,
                            .time_max = CONNECT_TIMEOUT,
                            .on_data = repository_discard};
    struct fetch_head head = {0};

    if (fetch_run(r->fetcher, &f, &head, NULL) >= 0) {
        fetch_head_done(&head);
        return 0;
    }
    plain = xasprintf("http://%s", r->registry);
    return repository_set_base(r, plain, err);
}

static int repository_find_base(struct repository *r, const char *mirror, struct err *err)
{
    bool plain = r->settings->plain_http;
    const char *host = STREQ(r->registry, DOCKER_REGISTRY) ? DOCKER_ADDRESS : r->registry;
    _cleanup_free_ char *base = xasprintf("http%s://%s", plain ? "" : "s", host);
    int rc = repository_set_base(r, mirror ? mirror : base, err);

    if (rc < 0 || mirror || plain || !repository_is_loopback(r->registry))
        return rc;
    return repository_probe_loopback(r, err);
}

int repository_new(const struct settings *s, const struct repository_name *name, const char *mirror,
                   bool push, struct repository **ret, struct err *err)
{
    struct repository *r = xnew0(struct repository);
    int rc;

    r->settings = s;
    r->push = push;
    r->registry = xstrdup(name->registry);
    r->repository = xstrdup(name->repository);
    r->basic = mirror ? NULL : repository_basic_of(s);
    pthread_mutex_init(&r->lock, NULL);
    rc = repository_find_base(r, mirror, err);
    if (rc < 0) {
        repository_free(r);
        return rc;
    }
    *ret = r;
    return 0;
}

void repository_free(struct repository *r)
{
    if (!r)
        return;
    fetcher_free(r->fetcher);
    pthread_mutex_destroy(&r->lock);
    free(r->base);
    free(r->host);
    free(r->registry);
    free(r->repository);
    free(r->basic);
    free(r->authorization);
    free(r);
}

/* ---- answers ---- */

int repository_status_error(const struct repository *r, int status, const char *what,
                            struct err *err)
{
    const char *host = r->registry;

    switch (status) {
    case 401:
        err_set(err, ERR_UNAUTHORIZED, "registry '%s' requires credentials for %s", host, what);
        return err_hint(err, "Log in with `docker login`, which writes ~/.docker/config.json, or "
                             "use --username and --password-stdin.");
    case 403:
        return err_set(err, ERR_DENIED, "registry '%s' denies %s", host, what);
    case 404:
        return err_set(err, ERR_NOT_FOUND, "registry '%s' does not have %s", host, what);
    case 429:
        return err_set(err, ERR_LIMIT, "registry '%s': too many requests (status 429)", host);
    default:
        return err_set(err, ERR_ENGINE, "registry '%s' answered status %d for %s", host, status,
                       what);
    }
}

/* fetch's on_data; arg: a struct buf. */
static int repository_take_text(void *arg, const char *data, size_t len, struct err *err)
{
    struct buf *b = arg;

    if (buf_append(b, data, len) < 0)
        return err_set(err, ERR_LIMIT, "the answer is over %zu bytes", b->max);
    return 0;
}

/* ---- tokens ---- */

static int repository_add_query(struct buf *b, const char *key, const char *value)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~";
    int r = buf_appendf(b, "%s%s=", strchr(buf_data(b), '?') ? "&" : "?", key);

    for (; r >= 0 && *value; value++)
        r = strchr(plain, *value) ? buf_append_c(b, *value)
                                  : buf_appendf(b, "%%%02X", (unsigned char)*value);
    return r;
}

static int repository_token_url(const struct repository *r, const struct challenge *c,
                                struct buf *b, struct err *err)
{
    _cleanup_free_ char *scope =
        xasprintf("repository:%s:%s", r->repository, r->push ? "pull,push" : "pull");

    if (buf_append_str(b, c->realm) < 0 ||
        (c->service && repository_add_query(b, "service", c->service) < 0) ||
        repository_add_query(b, "scope", scope) < 0)
        return err_set(err, ERR_LIMIT, "the URL of the registry's token server is too long");
    return 0;
}

/* "host" of "host:port" */
static bool repository_same_machine(const char *a, const char *b)
{
    const char *end = strrchr(a, ':'), *other = strrchr(b, ':');

    return end && other && end - a == other - b && strncmp(a, b, (size_t)(end - a)) == 0;
}

/* The registry chooses the URL of the token server. A private address or plain HTTP is allowed only
 * on the registry's own host, and only if the registry itself is reached that way. */
static int repository_fetch_token(struct repository *r, const struct challenge *c, char **ret,
                                  struct err *err)
{
    _cleanup_buf_ struct buf url = BUF_INIT(URL_MAX);
    _cleanup_wipe_ struct buf answer = BUF_INIT(TOKEN_ANSWER_MAX);
    _cleanup_free_ char *host = fetch_url_host(c->realm);
    struct fetch f = {.size_max = TOKEN_ANSWER_MAX,
                      .time_max = ANSWER_TIMEOUT,
                      .on_data = repository_take_text,
                      .arg = &answer};
    _cleanup_(fetch_head_done) struct fetch_head head = {0};
    struct fetcher *fetcher;
    bool same;
    int rc;

    if (!host)
        return err_set(err, ERR_DENIED, "the registry's token server does not have an https URL");
    same = repository_same_machine(host, r->host);
    rc = repository_token_url(r, c, &url, err);
    if (rc < 0)
        return rc;
    f.url = buf_data(&url);
    f.authorization = r->basic;
    fetcher = repository_fetcher_for(r->settings, host, same, same && r->http);
    rc = fetch_run(fetcher, &f, &head, err);
    fetcher_free(fetcher);
    if (rc < 0)
        return rc;
    if (head.status != 200)
        return repository_status_error(r, head.status, "this repository", err);
    return challenge_parse_token(buf_data(&answer), answer.len, ret, err);
}

/* *ret: an Authorization header, which the caller frees; NULL: no credentials were given. */
static int repository_answer_challenge(struct repository *r, const char *text, char **ret,
                                       struct err *err)
{
    _cleanup_(challenge_done) struct challenge c = {0};
    _cleanup_free_ char *token = NULL;
    int rc;

    rc = challenge_parse(text, &c, err);
    if (rc < 0)
        return rc;
    if (c.scheme == CHALLENGE_BASIC) {
        *ret = r->basic ? xstrdup(r->basic) : NULL;
        return 0;
    }
    rc = repository_fetch_token(r, &c, &token, err);
    if (rc < 0)
        return rc;
    *ret = xasprintf("Bearer %s", token);
    return 0;
}

static int repository_log_in(struct repository *r, const char *used, const char *challenge,
                             struct err *err)
{
    char *fresh = NULL;

    if (challenge && repository_answer_challenge(r, challenge, &fresh, err) < 0)
        return err_wrap(err, "log in to '%s'", r->registry);
    free(r->authorization);
    r->authorization = fresh;
    return fresh && !(used && STREQ(fresh, used));
}

/*
 * Replaces the header that was refused, unless another thread has replaced it already. used: the
 * refused header, or NULL. 1: try again; 0: nothing new to try.
 */
static int repository_renew(struct repository *r, const char *used, const char *challenge,
                            struct err *err)
{
    int rc = 1;

    pthread_mutex_lock(&r->lock);
    if (!r->authorization || (used && STREQ(r->authorization, used)))
        rc = repository_log_in(r, used, challenge, err);
    pthread_mutex_unlock(&r->lock);
    return rc;
}

/* ---- requests ---- */

static char *repository_url_of(const struct repository *r, const char *path)
{
    return strstr(path, "://") ? xstrdup(path)
                               : xasprintf("%s/v2/%s/%s", r->base, r->repository, path);
}

int repository_fetch(struct repository *r, const struct fetch *f, struct fetch_head *ret,
                     struct err *err)
{
    _cleanup_free_ char *url = repository_url_of(r, f->url);
    struct fetch own = *f;

    own.url = url;
    for (bool again = true;; again = false) {
        _cleanup_free_ char *used = NULL;
        struct fetch_head head = {0};
        int rc;

        pthread_mutex_lock(&r->lock);
        used = r->authorization ? xstrdup(r->authorization) : NULL;
        pthread_mutex_unlock(&r->lock);
        own.authorization = used;
        rc = fetch_run(r->fetcher, &own, &head, err);
        if (rc < 0)
            return rc;
        if (head.status == 401 && again)
            rc = repository_renew(r, used, head.challenge, err);
        if (rc <= 0 || head.status != 401 || !again) {
            if (rc < 0)
                fetch_head_done(&head);
            else
                *ret = head;
            return MIN(rc, 0);
        }
        fetch_head_done(&head);
    }
}

int repository_get(struct repository *r, const char *path, const char *accept, size_t max,
                   char **ret, size_t *ret_len, struct err *err)
{
    _cleanup_buf_ struct buf body = BUF_INIT(max);
    const struct fetch f = {.url = path,
                            .accept = accept,
                            .size_max = max,
                            .time_max = ANSWER_TIMEOUT,
                            .on_data = repository_take_text,
                            .arg = &body};
    _cleanup_(fetch_head_done) struct fetch_head head = {0};
    int rc = repository_fetch(r, &f, &head, err);

    if (rc < 0)
        return rc;
    if (head.status != 200) {
        _cleanup_free_ char *what =
            xasprintf("'%s' of '%s'", strrchr(path, '/') + 1, r->repository);

        return repository_status_error(r, head.status, what, err);
    }
    *ret_len = body.len;
    *ret = buf_steal(&body);
    return 0;
}

char *repository_location(const struct repository *r, const char *path, const char *location)
{
    _cleanup_free_ char *url = repository_url_of(r, path);

    return location ? fetch_url_join(url, location) : NULL;
}

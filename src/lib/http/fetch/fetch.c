/*
 * One curl easy handle per running transfer. Idle handles are kept, with their connections, TLS
 * sessions and parsed certificates. A fetcher serves one upstream only, so a connection to a
 * trusted private host is never used for a URL from another source.
 */
#include "lib/http/fetch/fetch.h"

#include <arpa/inet.h>
#include <curl/curl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "lib/base/cleanup.h"
#include "lib/base/parse.h"
#include "lib/base/strv.h"
#include "lib/base/time.h"
#include "lib/base/xalloc.h"
#include "lib/http/fetch/system-ca.h"

enum { IDLE_MAX = 8, LOW_SPEED = 100, FIELD_MAX = 512, LONG_FIELD_MAX = 8192 };

static const char *fetch_system_ca; /* set by fetch_init() */

struct fetcher {
    char **hosts;
    char *authorization, *ca_pem, *user_agent;
    bool private_ok, http_ok, http_any, proxied;
    uint64_t connect_timeout, stall_timeout;
    pthread_mutex_t lock; /* over the two below */
    CURL *idle[IDLE_MAX];
    size_t n_idle;
};

/* One hop of one download. */
struct hop {
    const struct fetcher *fetcher;
    const struct fetch *f;
    struct fetch_head head;
    struct err err; /* what a callback said */
    struct deadline by;
    uint64_t got;
    CURL *curl;
    bool told;    /* on_head has been called */
    bool trusted; /* the host is one of `hosts` of the configuration */
    bool refused; /* an address was */
    bool secure;  /* a hop used TLS: later hops must, too */
};

/* -- addresses -- */

struct net4 {
    uint32_t net;
    unsigned bits;
};

/* clang-format off */
static const struct net4 not_public[] = {
    {0x00000000, 8},  {0x0a000000, 8},  {0x64400000, 10}, {0x7f000000, 8},  {0xa9fe0000, 16}, {0xac100000, 12},
    {0xc0000000, 24}, {0xc0a80000, 16}, {0xc6120000, 15}, {0xe0000000, 3},
};
/* clang-format on */

static bool fetch_is_public4(uint32_t a)
{
    for (size_t i = 0; i < ARRAY_SIZE(not_public); i++)
        if (a >> (32 - not_public[i].bits) == not_public[i].net >> (32 - not_public[i].bits))
            return false;
    return true;
}

static uint32_t fetch_word(const uint8_t *p)
{
    return (uint32_t)p[0] << 24 | (uint32_t)p[1] << 16 | (uint32_t)p[2] << 8 | p[3];
}

/* A v6 address that contains a v4 address is judged by the v4 address. */
static bool fetch_is_public6(const uint8_t *a)
{
    static const uint8_t zero[12], nat64[12] = {0, 0x64, 0xff, 0x9b};

    if (memcmp(a, zero, 10) == 0 && ((a[10] == 0xff && a[11] == 0xff) || !fetch_word(a + 8)))
        return fetch_is_public4(fetch_word(a + 12));
    if (memcmp(a, nat64, 12) == 0)
        return fetch_is_public4(fetch_word(a + 12));
    if (a[0] == 0x20 && a[1] == 0x02)
        return fetch_is_public4(fetch_word(a + 2));
    return (a[0] & 0xe0) == 0x20;
}

bool fetch_address_is_public(const struct sockaddr *address)
{
    if (address->sa_family == AF_INET)
        return fetch_is_public4(ntohl(((const struct sockaddr_in *)address)->sin_addr.s_addr));
    if (address->sa_family == AF_INET6)
        return fetch_is_public6(((const struct sockaddr_in6 *)address)->sin6_addr.s6_addr);
    return false;
}

static bool fetch_literal_is_public(const char *host)
{
    struct sockaddr_in v4 = {.sin_family = AF_INET};
    struct sockaddr_in6 v6 = {.sin6_family = AF_INET6};
    _cleanup_free_ char *bare = NULL;

    if (inet_pton(AF_INET, host, &v4.sin_addr) == 1)
        return fetch_address_is_public((const struct sockaddr *)&v4);
    if (host[0] != '[')
        return strcasecmp(host, "localhost") != 0;
    bare = xstrndup(host + 1, strcspn(host + 1, "]%"));
    return inet_pton(AF_INET6, bare, &v6.sin6_addr) == 1 &&
           fetch_address_is_public((const struct sockaddr *)&v6);
}

/* -- URLs -- */

struct url {
    char *scheme, *host, *port;
};

static void fetch_url_done(struct url *u)
{
    curl_free(u->scheme);
    curl_free(u->host);
    curl_free(u->port);
}

/* Uses the URL parser of curl, so that the check sees the same host as the transfer. */
static bool fetch_url_parse(const char *text, struct url *ret)
{
    CURLU *h = curl_url();
    bool ok = h && curl_url_set(h, CURLUPART_URL, text, CURLU_NON_SUPPORT_SCHEME) == CURLUE_OK &&
              curl_url_get(h, CURLUPART_SCHEME, &ret->scheme, 0) == CURLUE_OK &&
              curl_url_get(h, CURLUPART_HOST, &ret->host, 0) == CURLUE_OK &&
              curl_url_get(h, CURLUPART_PORT, &ret->port, CURLU_DEFAULT_PORT) == CURLUE_OK;

    curl_url_cleanup(h);
    return ok && (STREQ(ret->scheme, "https") || STREQ(ret->scheme, "http"));
}

static char *fetch_host_and_port(const struct url *u)
{
    char *s = xasprintf("%s:%s", u->host, u->port);

    for (char *p = s; *p; p++)
        if (*p >= 'A' && *p <= 'Z')
            *p = (char)(*p - 'A' + 'a');
    return s;
}

char *fetch_url_host(const char *url)
{
    _cleanup_(fetch_url_done) struct url u = {0};

    return fetch_url_parse(url, &u) ? fetch_host_and_port(&u) : NULL;
}

char *fetch_url_join(const char *base, const char *ref)
{
    CURLU *h = curl_url();
    char *out = NULL, *ret = NULL;

    if (h && curl_url_set(h, CURLUPART_URL, base, 0) == CURLUE_OK &&
        curl_url_set(h, CURLUPART_URL, ref, 0) == CURLUE_OK &&
        curl_url_set(h, CURLUPART_FRAGMENT, NULL, 0) == CURLUE_OK &&
        curl_url_get(h, CURLUPART_URL, &out, 0) == CURLUE_OK)
        ret = xstrdup(out);
    curl_free(out);
    curl_url_cleanup(h);
    return ret;
}

static bool fetch_may_be_plain(const struct hop *hop, bool trusted)
{
    const struct fetcher *f = hop->fetcher;

    return !hop->secure && (f->http_any || (trusted && f->http_ok));
}

/* 1: a trusted host; 0: another host that may be used; or an error. */
static int fetch_url_check(struct hop *hop, const char *text, struct err *err)
{
    const struct fetcher *fetcher = hop->fetcher;
    _cleanup_(fetch_url_done) struct url u = {0};
    _cleanup_free_ char *at = NULL;
    bool trusted;

    if (!fetch_url_parse(text, &u))
        return err_set(err, ERR_DENIED, "'%.200s' is not an https address", text);
    at = fetch_host_and_port(&u);
    trusted = strv_contains(fetcher->hosts, at);
    if (STREQ(u.scheme, "https"))
        hop->secure = true;
    else if (!fetch_may_be_plain(hop, trusted))
        return err_set(err, ERR_DENIED, "'%.200s' is not https", text);
    if (!(trusted && fetcher->private_ok) && !fetch_literal_is_public(u.host))
        return err_set(err, ERR_DENIED, "'%.200s' is an address in a private network", text);
    return trusted;
}

/* -- curl's calls -- */

static curl_socket_t fetch_on_socket(void *arg, curlsocktype purpose, struct curl_sockaddr *a)
{
    struct hop *hop = arg;

    if (purpose != CURLSOCKTYPE_IPCXN)
        return CURL_SOCKET_BAD;
    if (!(hop->trusted && hop->fetcher->private_ok) && !hop->fetcher->proxied &&
        !fetch_address_is_public(&a->addr)) {
        hop->refused = true;
        return CURL_SOCKET_BAD;
    }
    return socket(a->family, a->socktype | SOCK_CLOEXEC, a->protocol);
}

static char *fetch_field_value(const char *line, size_t len, const char *name, size_t max)
{
    size_t n = strlen(name);

    if (len <= n || strncasecmp(line, name, n) != 0 || line[n] != ':' || len > max)
        return NULL;
    for (n++; n < len && (line[n] == ' ' || line[n] == '\t');)
        n++;
    while (len > n && (unsigned char)line[len - 1] <= ' ')
        len--;
    return xstrndup(line + n, len - n);
}

static void fetch_take_text(char **at, const char *line, size_t len, const char *name, size_t max)
{
    char *value = fetch_field_value(line, len, name, max);

    if (!value)
        return;
    free(*at);
    *at = value;
}

static void fetch_take_field(struct fetch_head *h, const char *line, size_t len)
{
    _cleanup_free_ char *length = fetch_field_value(line, len, "content-length", FIELD_MAX);
    _cleanup_free_ char *range = fetch_field_value(line, len, "content-range", FIELD_MAX);

    fetch_take_text(&h->etag, line, len, "etag", FIELD_MAX);
    fetch_take_text(&h->content_type, line, len, "content-type", FIELD_MAX);
    fetch_take_text(&h->modified, line, len, "last-modified", FIELD_MAX);
    fetch_take_text(&h->location, line, len, "location", LONG_FIELD_MAX);
    /* The first of several challenges: servers put the preferred one first. */
    if (!h->challenge)
        fetch_take_text(&h->challenge, line, len, "www-authenticate", LONG_FIELD_MAX);
    if (length && parse_u64(length, 0, INT64_MAX, &h->length, NULL) < 0)
        h->length = UINT64_MAX;
    if (range && strncasecmp(range, "bytes ", 6) == 0)
        h->from = strtoull(range + 6, NULL, 10);
}

static size_t fetch_on_line(char *line, size_t size, size_t n, void *arg)
{
    struct hop *hop = arg;

    /* A new head begins: the previous one was an interim response. */
    if (n > 5 && strncmp(line, "HTTP/", 5) == 0) {
        fetch_head_done(&hop->head);
        hop->head.length = UINT64_MAX;
    } else {
        fetch_take_field(&hop->head, line, n);
    }
    return size * n;
}

static int fetch_tell_head(struct hop *hop)
{
    long status = 0;

    if (hop->told)
        return 0;
    hop->told = true;
    curl_easy_getinfo(hop->curl, CURLINFO_RESPONSE_CODE, &status);
    hop->head.status = (int)status;
    if (status != 200 && status != 206)
        return 0;
    if (hop->head.length != UINT64_MAX && hop->head.length > hop->f->size_max)
        return err_set(&hop->err, ERR_LIMIT, "the response is larger than %llu bytes",
                       (unsigned long long)hop->f->size_max);
    if (!hop->f->on_head)
        return 0;
    return hop->f->on_head(hop->f->arg, &hop->head, &hop->err);
}

static size_t fetch_on_bytes(char *data, size_t size, size_t n, void *arg)
{
    struct hop *hop = arg;

    size *= n;
    if (fetch_tell_head(hop) < 0)
        return 0;
    hop->got += size;
    if (hop->got > hop->f->size_max) {
        err_set(&hop->err, ERR_LIMIT, "the response is larger than %llu bytes",
                (unsigned long long)hop->f->size_max);
        return 0;
    }
    if (hop->head.status != 200 && hop->head.status != 206)
        return size;
    return hop->f->on_data(hop->f->arg, data, size, &hop->err) < 0 ? 0 : size;
}

static int fetch_on_progress(void *arg, curl_off_t a _unused_, curl_off_t b _unused_,
                             curl_off_t c _unused_, curl_off_t d _unused_)
{
    struct hop *hop = arg;

    if (hop->f->stop && atomic_load(hop->f->stop)) {
        if (hop->err.code == ERR_NONE)
            err_set(&hop->err, ERR_TIMEOUT, "the download was cancelled");
        return 1;
    }
    if (deadline_passed(&hop->by)) {
        if (hop->err.code == ERR_NONE)
            err_set(&hop->err, ERR_TIMEOUT, "the response was not complete in time");
        return 1;
    }
    return 0;
}

/* -- handles -- */

static CURL *fetch_take_handle(struct fetcher *f)
{
    CURL *c = NULL;

    pthread_mutex_lock(&f->lock);
    if (f->n_idle)
        c = f->idle[--f->n_idle];
    pthread_mutex_unlock(&f->lock);
    return c ? c : curl_easy_init();
}

static void fetch_give_handle(struct fetcher *f, CURL *c)
{
    curl_easy_reset(c); /* the connections stay */
    pthread_mutex_lock(&f->lock);
    if (f->n_idle < IDLE_MAX)
        f->idle[f->n_idle++] = TAKE_PTR(c);
    pthread_mutex_unlock(&f->lock);
    if (c)
        curl_easy_cleanup(c);
}

static bool fetch_is_upload(const struct fetch *f)
{
    return f->method && !STREQ(f->method, "GET") && !STREQ(f->method, "HEAD");
}

static struct curl_slist *fetch_request_fields(const struct hop *hop)
{
    const struct fetch *f = hop->f;
    const char *authorization = f->authorization ? f->authorization : hop->fetcher->authorization;
    struct curl_slist *list = NULL;
    const char *const values[][2] = {
        {"Accept", f->accept ? f->accept : "*/*"},
        {"If-None-Match", f->etag},
        {"Authorization", hop->trusted ? authorization : NULL},
        {"Content-Type", f->content_type},
    };

    if (fetch_is_upload(f))
        list =
            curl_slist_append(list, "Expect:"); /* a server that refuses the body answers anyway */
    for (size_t i = 0; i < ARRAY_SIZE(values); i++) {
        _cleanup_free_ char *line = NULL;

        if (!values[i][1])
            continue;
        line = xasprintf("%s: %s", values[i][0], values[i][1]);
        list = curl_slist_append(list, line);
    }
    return list;
}

static void fetch_set_trust(struct hop *hop, CURL *c)
{
    const struct fetcher *fetcher = hop->fetcher;
    struct curl_blob ca = {.data = fetcher->ca_pem, .flags = CURL_BLOB_NOCOPY};

    curl_easy_setopt(c, CURLOPT_PROTOCOLS_STR,
                     fetcher->http_ok || fetcher->http_any ? "http,https" : "https");
    curl_easy_setopt(c, CURLOPT_SSL_VERIFYPEER, 1L);
    curl_easy_setopt(c, CURLOPT_SSL_VERIFYHOST, 2L);
    curl_easy_setopt(c, CURLOPT_SSLVERSION, (long)CURL_SSLVERSION_TLSv1_2);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETFUNCTION, fetch_on_socket);
    curl_easy_setopt(c, CURLOPT_OPENSOCKETDATA, hop);
    if (!fetcher->ca_pem && fetch_system_ca)
        curl_easy_setopt(c, CURLOPT_CAINFO, fetch_system_ca);
    if (!fetcher->ca_pem)
        return;
    ca.len = strlen(fetcher->ca_pem);
    curl_easy_setopt(c, CURLOPT_CAINFO_BLOB, &ca);
    curl_easy_setopt(c, CURLOPT_CAPATH, NULL);
}

static void fetch_set_transfer(struct hop *hop, CURL *c)
{
    const struct fetcher *fetcher = hop->fetcher;

    curl_easy_setopt(c, CURLOPT_NOSIGNAL, 1L);
    curl_easy_setopt(c, CURLOPT_USERAGENT, fetcher->user_agent);
    curl_easy_setopt(c, CURLOPT_CONNECTTIMEOUT_MS,
                     (long)(fetcher->connect_timeout / USEC_PER_MSEC));
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_LIMIT, (long)LOW_SPEED);
    curl_easy_setopt(c, CURLOPT_LOW_SPEED_TIME,
                     (long)MAX(fetcher->stall_timeout / USEC_PER_SEC, UINT64_C(1)));
    curl_easy_setopt(c, CURLOPT_HEADERFUNCTION, fetch_on_line);
    curl_easy_setopt(c, CURLOPT_HEADERDATA, hop);
    curl_easy_setopt(c, CURLOPT_WRITEFUNCTION, fetch_on_bytes);
    curl_easy_setopt(c, CURLOPT_WRITEDATA, hop);
    curl_easy_setopt(c, CURLOPT_NOPROGRESS, 0L);
    curl_easy_setopt(c, CURLOPT_XFERINFOFUNCTION, fetch_on_progress);
    curl_easy_setopt(c, CURLOPT_XFERINFODATA, hop);
    curl_easy_setopt(c, CURLOPT_SUPPRESS_CONNECT_HEADERS, 1L);
    if (hop->f->compressed)
        curl_easy_setopt(c, CURLOPT_ACCEPT_ENCODING, "gzip");
}

static size_t fetch_on_send(char *data, size_t size, size_t n, void *arg)
{
    struct hop *hop = arg;
    ssize_t len = hop->f->on_send ? hop->f->on_send(hop->f->arg, data, size * n, &hop->err) : 0;

    return len < 0 ? CURL_READFUNC_ABORT : (size_t)len;
}

static void fetch_set_method(struct hop *hop, CURL *c)
{
    const struct fetch *f = hop->f;

    if (f->method && STREQ(f->method, "HEAD"))
        curl_easy_setopt(c, CURLOPT_NOBODY, 1L);
    if (!fetch_is_upload(f))
        return;
    curl_easy_setopt(c, CURLOPT_UPLOAD, 1L);
    curl_easy_setopt(c, CURLOPT_CUSTOMREQUEST, f->method);
    curl_easy_setopt(c, CURLOPT_INFILESIZE_LARGE, (curl_off_t)f->send_size);
    curl_easy_setopt(c, CURLOPT_READFUNCTION, fetch_on_send);
    curl_easy_setopt(c, CURLOPT_READDATA, hop);
}

static int fetch_transfer_error(struct hop *hop, CURLcode code, const char *words, struct err *err)
{
    const char *why = words[0] ? words : curl_easy_strerror(code);

    if (hop->err.code != ERR_NONE)
        return err_move(err, &hop->err);
    if (hop->refused)
        return err_set(err, ERR_DENIED,
                       "the host name resolves to an address in a private network");
    if (code == CURLE_OPERATION_TIMEDOUT)
        return err_set(err, ERR_TIMEOUT, "%s", why);
    if (code != CURLE_PEER_FAILED_VERIFICATION && code != CURLE_SSL_CACERT_BADFILE)
        return err_set(err, ERR_ENGINE, "%s", why);
    if (fetch_system_ca || hop->fetcher->ca_pem) {
        err_set(err, ERR_ENGINE, "%s", why);
        return err_hint(
            err, "Set 'ca_file' of the upstream to the authority that signed its certificate.");
    }
    err_set(err, ERR_ENGINE, "%s (no CA certificates on this machine)", why);
    return err_hint(err,
                    "Install the package 'ca-certificates', or set 'ca_file' of the upstream.");
}

/* One request. *redirect is the target of a redirect, or NULL. */
static int fetch_run_hop(struct hop *hop, const char *url, char **redirect, struct err *err)
{
    char words[CURL_ERROR_SIZE] = "", range[32], *to = NULL;
    struct curl_slist *fields = fetch_request_fields(hop);
    CURL *c = hop->curl;
    curl_off_t n = 0;
    CURLcode code;

    fetch_set_trust(hop, c);
    fetch_set_transfer(hop, c);
    fetch_set_method(hop, c);
    curl_easy_setopt(c, CURLOPT_URL, url);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, fields);
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, words);
    snprintf(range, sizeof(range), "%llu-", (unsigned long long)hop->f->from);
    if (hop->f->from) /* not CURLOPT_RESUME_FROM: it fails on a 200, which is fine for us */
        curl_easy_setopt(c, CURLOPT_RANGE, range);
    code = curl_easy_perform(c);
    if (hop->f->received && curl_easy_getinfo(c, CURLINFO_SIZE_DOWNLOAD_T, &n) == CURLE_OK)
        *hop->f->received += (uint64_t)n;
    curl_easy_setopt(c, CURLOPT_ERRORBUFFER, NULL);
    curl_easy_setopt(c, CURLOPT_HTTPHEADER, NULL);
    curl_slist_free_all(fields);
    if (code == CURLE_OK && fetch_tell_head(hop) < 0)
        return err_move(err, &hop->err);
    if (code != CURLE_OK)
        return fetch_transfer_error(hop, code, words, err);
    curl_easy_getinfo(c, CURLINFO_REDIRECT_URL, &to);
    if (to && !fetch_is_upload(hop->f) && hop->head.status >= 300 && hop->head.status < 400 &&
        hop->head.status != 304)
        *redirect = xstrdup(to);
    return 0;
}

static int fetch_follow(struct hop *hop, struct err *err)
{
    _cleanup_free_ char *url = xstrdup(hop->f->url);

    for (int i = 0; i <= FETCH_REDIRECTS_MAX; i++) {
        _cleanup_free_ char *redirect = NULL;
        int r = fetch_url_check(hop, url, err);

        if (r < 0)
            return i ? err_wrap(err, "redirected") : r;
        hop->trusted = r;
        hop->told = false;
        hop->got = 0;
        r = fetch_run_hop(hop, url, &redirect, err);
        if (r < 0 || !redirect)
            return r;
        free(url);
        url = TAKE_PTR(redirect);
    }
    return err_set(err, ERR_DENIED, "more than %d redirects", FETCH_REDIRECTS_MAX);
}

int fetch_run(struct fetcher *fetcher, const struct fetch *f, struct fetch_head *ret,
              struct err *err)
{
    struct hop hop = {.fetcher = fetcher,
                      .f = f,
                      .by = {.at = f->time_max ? deadline_in(f->time_max).at : DEADLINE_NEVER}};
    int r;

    hop.curl = fetch_take_handle(fetcher);
    if (!hop.curl)
        return err_set(err, ERR_SYSTEM, "cannot create a curl handle");
    r = fetch_follow(&hop, err);
    fetch_give_handle(fetcher, hop.curl);
    err_done(&hop.err);
    if (r < 0) {
        fetch_head_done(&hop.head);
        return err_wrap(err, "%s '%.300s'", fetch_is_upload(f) ? "send to" : "get", f->url);
    }
    *ret = hop.head;
    return 0;
}

void fetch_head_done(struct fetch_head *h)
{
    free(h->etag);
    free(h->content_type);
    free(h->modified);
    free(h->challenge);
    free(h->location);
    *h = (struct fetch_head){0};
}

int fetch_init(struct err *err)
{
    struct addrinfo *found = NULL;

    if (curl_global_init(CURL_GLOBAL_DEFAULT) != 0)
        return err_set(err, ERR_SYSTEM, "libcurl cannot be initialised");
    fetch_system_ca = system_ca_find("");
    /* libc loads its resolver now: a system call filter may forbid it later. */
    if (getaddrinfo("localhost", NULL, NULL, &found) == 0)
        freeaddrinfo(found);
    return 0;
}

static bool fetch_has_proxy(void)
{
    static const char *const names[] = {"https_proxy", "HTTPS_PROXY", "http_proxy", "all_proxy",
                                        "ALL_PROXY"};

    for (size_t i = 0; i < ARRAY_SIZE(names); i++) {
        const char *v = getenv(names[i]);

        if (v && *v)
            return true;
    }
    return false;
}

static char *fetch_copy(const char *s)
{
    return s ? xstrdup(s) : NULL;
}

struct fetcher *fetcher_new(const struct fetcher_config *config)
{
    struct fetcher *f = xnew0(struct fetcher);

    f->hosts = strv_copy(config->hosts);
    f->authorization = fetch_copy(config->authorization);
    f->ca_pem = fetch_copy(config->ca_pem);
    f->user_agent = xstrdup(config->user_agent);
    f->private_ok = config->private_ok;
    f->http_ok = config->http_ok;
    f->http_any = config->http_any;
    f->proxied = fetch_has_proxy();
    f->connect_timeout = config->connect_timeout;
    f->stall_timeout = config->stall_timeout;
    pthread_mutex_init(&f->lock, NULL);
    return f;
}

void fetcher_free(struct fetcher *f)
{
    if (!f)
        return;
    while (f->n_idle)
        curl_easy_cleanup(f->idle[--f->n_idle]);
    pthread_mutex_destroy(&f->lock);
    strv_free(f->hosts);
    free(f->authorization);
    free(f->ca_pem);
    free(f->user_agent);
    free(f);
}

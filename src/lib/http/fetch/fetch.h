/*
 * Downloads and uploads over the internet with libcurl; blocking, for workers. TLS is verified.
 * This module follows redirects itself, so it can check each hop: only https, no private and no
 * loopback address, unless the caller trusts the host. A redirect from https to http is always
 * refused. Proxy variables of the environment are honoured. The address behind a name that a proxy
 * resolves cannot be checked; a literal address is still checked.
 *
 * The other client, lib/http/wire/client.h, is for our own daemon and for engines.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

struct sockaddr;
struct fetcher; /* keeps connections to one upstream open; any thread may use it */

enum { FETCH_REDIRECTS_MAX = 5 };

struct fetcher_config {
    char *const *hosts; /* strv "host:port", copied: trusted hosts, which get `authorization` */
    bool private_ok;    /* trusted hosts may have private addresses */
    bool http_ok;       /* trusted hosts may be used without TLS */
    bool http_any;      /* all hosts may be used without TLS */
    const char *authorization; /* value of the header field, copied, or NULL */
    const char *ca_pem;        /* copied; NULL: the certificates of the system */
    uint64_t connect_timeout;  /* usec */
    uint64_t stall_timeout;    /* usec with almost no bytes */
    const char *user_agent;
};

/* Loads what transfers need of the machine: its CA certificates and libc's resolver. Call it before
 * the process has a second thread, and before it installs a system call filter. */
int fetch_init(struct err *err);
struct fetcher *fetcher_new(const struct fetcher_config *config);
void fetcher_free(struct fetcher *f); /* NULL is fine */

struct fetch_head {
    int status;
    char *etag, *content_type; /* owned, may be NULL */
    char *modified;            /* Last-Modified, likewise */
    uint64_t length;           /* of the body; UINT64_MAX: unknown */
    uint64_t from;             /* status 206: the offset of the first byte */
    /* WWW-Authenticate, and Location as received; owned, may be NULL */
    char *challenge, *location;
};
void fetch_head_done(struct fetch_head *h);

struct fetch {
    const char *url;
    const char *accept; /* may be NULL */
    const char *etag;   /* asks for 304 if the ETag is still current; may be NULL */
    /* Replaces that of the fetcher, for the same hosts; may be NULL. */
    const char *authorization;
    uint64_t from;     /* asks for the bytes from here on */
    uint64_t size_max; /* of the body after decompression */
    uint64_t time_max; /* usec for the whole transfer; 0: only stall_timeout */
    bool compressed;   /* the server may compress the body */
    /* Both may fail with a negative code and *err filled. on_data is called for 200 and 206 only;
     * on_head (may be NULL) is called before it. */
    int (*on_head)(void *arg, const struct fetch_head *head, struct err *err);
    int (*on_data)(void *arg, const char *data, size_t len, struct err *err);
    /* method NULL: GET. Methods other than GET and HEAD send a body of send_size bytes: on_send
     * provides them in pieces of up to len; fewer bytes are a failure. Their redirects are not
     * followed: the result is the 30x. */
    const char *method, *content_type;
    uint64_t send_size;
    ssize_t (*on_send)(void *arg, char *data, size_t len, struct err *err);
    void *arg;
    uint64_t *received;      /* counts received body bytes before decompression; may be NULL */
    const atomic_bool *stop; /* true ends the transfer with ERR_TIMEOUT; may be NULL */
};

/*
 * 0 with any HTTP status of the upstream. Errors: ERR_ENGINE (not reached, or connection lost),
 * ERR_TIMEOUT, ERR_LIMIT (larger than size_max), ERR_DENIED (a forbidden address), or the error of
 * a callback.
 */
int fetch_run(struct fetcher *fetcher, const struct fetch *f, struct fetch_head *ret,
              struct err *err);

bool fetch_address_is_public(const struct sockaddr *address);
/* "host:port" of an http or https URL in lower case, malloc'd; NULL: another URL. */
char *fetch_url_host(const char *url);
/* Resolves `ref` against `base`, without the fragment, malloc'd; NULL: not a valid URL. */
char *fetch_url_join(const char *base, const char *ref);

/*
 * Downloads from outside and uploads, on libcurl: blocking, for workers. TLS is verified, redirects
 * are followed here and not by curl, so that each hop is looked at: https only, no address of a
 * private network and no loopback, unless the host is one of those that the caller trusts. Whatever
 * the caller allows, https never leads back to http. Proxy
 * variables of the environment are honoured; an address that a proxy resolves cannot be looked at
 * then, a literal one still is.
 *
 * The other client, lib/http/wire/client.h, is for our own daemon and engines.
 */
#pragma once

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

struct sockaddr;
struct fetcher; /* connections kept open to one upstream; any thread may use it */

enum { FETCH_REDIRECTS_MAX = 5 };

struct fetcher_config {
    char *const *hosts;        /* strv "host:port", copied: these get `authorization` */
    bool private_ok;           /* and may have private addresses */
    bool http_ok;              /* and may be asked without TLS */
    bool http_any;             /* so may all others */
    const char *authorization; /* value of the header, copied; NULL: none */
    const char *ca_pem;        /* copied; NULL: the system's certificates */
    uint64_t connect_timeout;  /* usec */
    uint64_t stall_timeout;    /* usec with next to no byte */
    const char *user_agent;
};

/* Before the process has a second thread. */
int fetch_init(struct err *err);
struct fetcher *fetcher_new(const struct fetcher_config *config);
void fetcher_free(struct fetcher *f); /* NULL is fine */

struct fetch_head {
    int status;
    char *etag, *content_type; /* owned, may be NULL */
    char *modified;            /* Last-Modified, likewise */
    uint64_t length;           /* of this answer's body; UINT64_MAX: not said */
    uint64_t from;             /* of a 206: where its bytes begin */
    /* WWW-Authenticate, and Location as it was sent; owned, may be NULL */
    char *challenge, *location;
};
void fetch_head_done(struct fetch_head *h);

struct fetch {
    const char *url;
    const char *accept; /* may be NULL */
    const char *etag;   /* asks for 304 when it still holds; may be NULL */
    /* Instead of the fetcher's own, and to the same hosts only; may be NULL. */
    const char *authorization;
    uint64_t from;     /* asks for the bytes from here on */
    uint64_t size_max; /* of the body, unpacked */
    uint64_t time_max; /* usec for all of it; 0: stall_timeout alone */
    bool compressed;   /* the server may send it compressed */
    /* Both may refuse by a negative code with *err filled. on_data is called for 200 and 206 only,
     * on_head (may be NULL) before it. */
    int (*on_head)(void *arg, const struct fetch_head *head, struct err *err);
    int (*on_data)(void *arg, const char *data, size_t len, struct err *err);
    /* NULL: GET. HEAD has no body, all others send one: send_size bytes that on_send gives, in
     * pieces of up to len; fewer is a failure. Redirects of those are not followed: the answer is
     * the 30x. */
    const char *method, *content_type;
    uint64_t send_size;
    ssize_t (*on_send)(void *arg, char *data, size_t len, struct err *err);
    void *arg;
    uint64_t *received; /* grows by the bytes of bodies as they came, packed; NULL: nobody asks */
    const atomic_bool *stop; /* ends it with ERR_TIMEOUT; may be NULL */
};

/*
 * 0 with any status an upstream gave, or: ERR_ENGINE (not reached, or broken off), ERR_TIMEOUT,
 * ERR_LIMIT (over size_max), ERR_DENIED (leads to where it must not), or what a callback said.
 */
int fetch_run(struct fetcher *fetcher, const struct fetch *f, struct fetch_head *ret,
              struct err *err);

bool fetch_address_is_public(const struct sockaddr *address);
/* "host:port" of an http or https URL, lower case; NULL when it is neither. */
char *fetch_url_host(const char *url);
/* `ref` as seen from the page at `base`, without its fragment; NULL when it is no URL. */
char *fetch_url_join(const char *base, const char *ref);

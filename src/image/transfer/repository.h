/*
 * One repository of an image registry (OCI distribution API), over lib/http/fetch/fetch.h. Calls
 * block; several threads may use one repository. Credentials go only to the registry and to the
 * token server that it names. They are never in an error or a log.
 */
#pragma once

#include <stdbool.h>

#include "image/transfer/settings.h"
#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/http/fetch/fetch.h"

/* The parts of an image name: "debian:12" is tag 12 of library/debian on docker.io. */
struct repository_name {
    char *registry, *repository, *tag; /* owned */
};

int repository_name_parse(const char *name, struct repository_name *ret, struct err *err);
void repository_name_done(struct repository_name *n);

struct repository;

/* mirror: a URL to use instead of the registry's own, without credentials; or NULL. push: whether
 * tokens must allow pushes. Borrows the settings. */
int repository_new(const struct settings *s, const struct repository_name *name, const char *mirror,
                   bool push, struct repository **ret, struct err *err);
void repository_free(struct repository *r); /* NULL is fine */

/*
 * f->url is a path below "/v2/<repository>/" ("manifests/1"), or a whole URL. If the registry
 * answers 401, gets a token and sends the request once more. A body (f->on_send) cannot be sent
 * twice, so a request without one must come first.
 */
int repository_fetch(struct repository *r, const struct fetch *f, struct fetch_head *ret,
                     struct err *err);
/* The body as text of up to `max` bytes with a NUL at its end; the caller frees it. A status other
 * than 200 is an error. */
int repository_get(struct repository *r, const char *path, const char *accept, size_t max,
                   char **ret, size_t *ret_len, struct err *err);
/* The URL in the Location header of an answer to `path`; the caller frees it. NULL: none, or not
 * valid. */
char *repository_location(const struct repository *r, const char *path, const char *location);

/* A fetcher with the certificates, timeouts and user agent of ripcord-transfer. rules: which hosts
 * it may contact. */
struct fetcher *repository_fetcher(const struct settings *s, const struct fetcher_config *rules);

/* The error for an unexpected status; what: the thing that was requested. */
int repository_status_error(const struct repository *r, int status, const char *what,
                            struct err *err);

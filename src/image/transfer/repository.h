/*
 * One repository of one registry (OCI distribution API), over lib/http/fetch/fetch.h. Blocking;
 * several threads may use one. Credentials go to the registry itself, and to the token server that
 * it names; they are never in an error or a log.
 */
#pragma once

#include <stdbool.h>

#include "image/transfer/settings.h"
#include "lib/base/buf.h"
#include "lib/base/err.h"
#include "lib/http/fetch/fetch.h"

/* A name of the store, taken apart: "debian:12" is library/debian of docker.io. */
struct repository_name {
    char *registry, *repository, *tag; /* owned */
};

int repository_name_parse(const char *name, struct repository_name *ret, struct err *err);
void repository_name_done(struct repository_name *n);

struct repository;

/* mirror: an address to be asked instead of the registry's own, or NULL; credentials do not go
 * there. */
int repository_new(const struct settings *s, const struct repository_name *name, const char *mirror,
                   bool push, struct repository **ret, struct err *err);
void repository_free(struct repository *r); /* NULL is fine */

/*
 * f->url is a path below "/v2/<repository>/" ("manifests/1"), or a whole address. Asks for a token
 * when the registry wants one, once; f->on_send is therefore only for requests after one that has
 * none.
 */
int repository_fetch(struct repository *r, const struct fetch *f, struct fetch_head *ret,
                     struct err *err);
/* The answer as a text of up to `max` bytes; ends with a NUL. Any status but 200 is an error. */
int repository_get(struct repository *r, const char *path, const char *accept, size_t max,
                   char **ret, size_t *ret_len, struct err *err);
/* Where an upload goes on: `location` of an answer, as seen from `path`. New; NULL: nowhere. */
char *repository_location(const struct repository *r, const char *path, const char *location);

/* With certificates, patience and a name as all of the hub have them; the rules say who may be
 * asked. */
struct fetcher *repository_fetcher(const struct settings *s, const struct fetcher_config *rules);

/* What a status that is not the wanted one means. */
int repository_status_error(const struct repository *r, int status, const char *what,
                            struct err *err);

/*
 * Files of an ADD that come from servers. The cache key of the step contains their digests, so
 * these are found first. Either the Dockerfile gives the digest (--checksum), or the server
 * confirms that the digest of an earlier build is still right (ETag), or the file is downloaded. In
 * the first two cases the file is downloaded only if the step is not in the cache.
 *
 * ripcord-transfer does the requests (daemon-conn.h). Its answers are not trusted: the digest is
 * computed here.
 */
#pragma once

#include <stdint.h>

#include "image/build/cache-key.h"
#include "image/build/daemon-conn.h"
#include "image/build/plan.h"
#include "image/build/workspace.h"
#include "lib/base/err.h"

struct add_download {
    char digest[DIGEST_MAX];
    int64_t modified; /* seconds since the epoch, from the server */
    char *folder;     /* owned: the file's folder in the workspace; NULL: not downloaded */
};

struct add_downloads {
    const struct build_plan_step *step; /* borrowed */
    struct workspace *workspace;        /* borrowed */
    struct daemon_conn *daemon_conn;    /* borrowed */
    bool no_cache;
    struct add_download *files; /* owned: one for each of the step's urls */
};

/* Finds the digests. The caller has set the fields before `files`. */
int add_downloads_identify(struct add_downloads *d, struct err *err);
/* Adds the digests to the key of the step. */
void add_downloads_key(const struct add_downloads *d, struct cache_key *k);
/* Downloads the files that are not here yet. 1: a file has changed since it was identified. */
int add_downloads_fetch(struct add_downloads *d, struct err *err);
void add_downloads_done(struct add_downloads *d);

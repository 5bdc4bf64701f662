/*
 * Files of an ADD that servers have. What a file is, its digest, is part of the step's key, so it
 * is found out first: the Dockerfile says it (--checksum), or the server says that what is known
 * from an earlier build still holds (ETag), or the file is fetched. The bytes of the first two are
 * fetched only when the step is not in the cache.
 *
 * Servers are asked by ripcord-transfer (daemon-conn.h), which may say what it likes: the digest is
 * counted here.
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
    int64_t modified; /* seconds since the epoch, as the server says */
    char *folder;     /* owned: of the build, where it lies under its name; NULL: not here */
};

struct add_downloads {
    const struct build_plan_step *step; /* borrowed, as are: */
    struct workspace *workspace;
    struct daemon_conn *daemon_conn;
    bool no_cache;
    struct add_download *files; /* owned: one for each of the step's urls */
};

/* Finds out what they are. The four that are borrowed have been set. */
int add_downloads_identify(struct add_downloads *f, struct err *err);
void add_downloads_key(const struct add_downloads *f, struct cache_key *k);
/* Has them all here. 1: one has become another since it was looked at. */
int add_downloads_fetch(struct add_downloads *f, struct err *err);
void add_downloads_done(struct add_downloads *f);

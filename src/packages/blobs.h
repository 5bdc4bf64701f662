/*
 * The store of package files, by digest: blobs/<algorithm>/<two digits>/<hex>. A file is renamed into
 * the store when it is complete, verified and synced. Its mtime is when it was last used. Eviction
 * unlinks files; a request that has the file open can read on.
 *
 * Functions that take struct blobs belong to the loop. Functions that take a folder may run on
 * workers.
 */
#pragma once

#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/map.h"
#include "packages/digest.h"

enum { BLOB_PATH_MAX = 160, BLOB_NOTE_MAX = 512 };

struct blob {
    struct digest digest;
    uint64_t size;
    int64_t used; /* microseconds since the epoch */
};

struct blobs {
    int dirfd;      /* borrowed */
    struct map map; /* "sha256:hex" to struct blob, owned */
    uint64_t bytes, budget, evicted;
    size_t n;
};

void blob_path(const struct digest *d, char ret[static BLOB_PATH_MAX]);
/* Makes the folders, clears tmp/, and reads the list of stored files. */
int blobs_open(struct blobs *b, int dirfd, uint64_t budget, struct err *err);
void blobs_done(struct blobs *b);
struct blob *blobs_get(struct blobs *b, const struct digest *d);
/* Opens a file for reading and marks it as used. -1: the file is missing; it is then forgotten. */
int blobs_use(struct blobs *b, const struct digest *d, uint64_t *ret_size);
void blobs_add(struct blobs *b, const struct digest *d, uint64_t size);
void blobs_forget(struct blobs *b, const struct digest *d);
/* Unlinks all files that were last used before `before` (microseconds since the epoch), then the
 * least recently used ones until at most `keep` bytes are left. */
void blobs_evict(struct blobs *b, uint64_t keep, int64_t before, uint64_t *ret_n,
                 uint64_t *ret_bytes);

/* A new file in tmp/; its name goes to `name`. */
int blob_tmp(int dirfd, char name[static 32], int *ret, struct err *err);
/* Moves the verified file into the store. `note` is its name for `cache ls`. */
int blob_commit(int dirfd, int fd, const char *tmp, const struct digest *d, const char *note,
                struct err *err);
/* Calls fn with each stored file, opened for reading. */
typedef void (*blob_walk_fn)(void *arg, int fd, const struct digest *d);
void blobs_walk(int dirfd, blob_walk_fn fn, void *arg);
void blob_note(int fd, char ret[static BLOB_NOTE_MAX]); /* "": no note */

/*
 * The stored files, by digest: blobs/<algorithm>/<two digits>/<hex>. A file gets there only whole,
 * verified and synced, by a rename; its time of change is when it was last used. Eviction unlinks:
 * whoever has the file open reads on.
 *
 * The table belongs to the loop; functions that take a folder alone may run on workers.
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
/* Makes the folders, clears what a crash left in tmp/, and reads what is there. */
int blobs_open(struct blobs *b, int dirfd, uint64_t budget, struct err *err);
void blobs_done(struct blobs *b);
struct blob *blobs_get(struct blobs *b, const struct digest *d);
/* Opens it for reading and marks it used; -1 when it is not there (and then forgets it). */
int blobs_use(struct blobs *b, const struct digest *d, uint64_t *ret_size);
void blobs_add(struct blobs *b, const struct digest *d, uint64_t size);
void blobs_forget(struct blobs *b, const struct digest *d);
/* Unlinks the longest unused until at most `keep` bytes are left, and all unused since `before`
 * (microseconds since the epoch). */
void blobs_evict(struct blobs *b, uint64_t keep, int64_t before, uint64_t *ret_n,
                 uint64_t *ret_bytes);

/* A new file in tmp/; its name goes to `name`. */
int blob_tmp(int dirfd, char name[static 32], int *ret, struct err *err);
/* The verified file becomes the blob. `note`: what it is, for `cache ls`. */
int blob_commit(int dirfd, int fd, const char *tmp, const struct digest *d, const char *note,
                struct err *err);
/* Calls fn for every stored file; the name is checked, the file open. */
typedef void (*blob_walk_fn)(void *arg, int fd, const struct digest *d);
void blobs_walk(int dirfd, blob_walk_fn fn, void *arg);
void blob_note(int fd, char ret[static BLOB_NOTE_MAX]); /* "" when there is none */

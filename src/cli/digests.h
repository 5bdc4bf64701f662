/*
 * A cache of the digests of a build context's files, so that unchanged files are not read again.
 * Device, inode, size, mtime and ctime identify the content of a file. A digest is stored only if
 * the file had not changed for a while when it was read: file times are as coarse as the kernel's
 * tick, and a second change within one tick would be invisible.
 *
 * Each context has one cache file in the state folder. A missing or unreadable file is an empty
 * cache.
 */
#pragma once

#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "proto/digest-context.h"

struct digests;

/* state: the state folder, which may be missing. context: stat of the context folder. Never returns
 * NULL. */
struct digests *digests_open(const char *state, const struct stat *context);
void digests_free(struct digests *d);
DEFINE_CLEANUP(struct digests *, digests_free);

/* Looks up the value for proto/digest-context.h; false when it is unknown. */
bool digests_find(struct digests *d, const struct stat *st,
                  char ret[static DIGEST_CONTEXT_VALUE_MAX]);
/* st must be from before the file was read. */
void digests_add(struct digests *d, const struct stat *st, const char *value);
/* Replaces the cache file with the digests that were found or added since the last call. */
void digests_save(struct digests *d);

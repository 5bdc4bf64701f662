/*
 * Digests of a build context's files from the last time, so that a context that has not changed is
 * not read again: by device, inode, size and both times. A file counts as unchanged only if it had
 * been left alone for a while when its digest was made: times are no finer than the kernel's tick,
 * and a second change within one would not show.
 *
 * One file of the state folder for each context; there may be none, and nothing breaks without.
 */
#pragma once

#include <sys/stat.h>

#include "lib/base/cleanup.h"
#include "proto/digest-context.h"

struct digests;

/* state: a folder that may be missing. context: the folder's. Never NULL. */
struct digests *digests_open(const char *state, const struct stat *context);
void digests_free(struct digests *d);
DEFINE_CLEANUP(struct digests *, digests_free);

/* Its value as in proto/digest-context.h, or false. */
bool digests_find(struct digests *d, const struct stat *st,
                  char ret[static DIGEST_CONTEXT_VALUE_MAX]);
/* st: from before the file was read. */
void digests_add(struct digests *d, const struct stat *st, const char *value);
/* Those found and added since the last call, in place of what the file had. */
void digests_save(struct digests *d);

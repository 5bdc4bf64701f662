/*
 * Deleting in the background. What is thrown away is renamed into trash/ at once and is gone for
 * everybody; a thread of its own then deletes it and ends when nothing is left. Deleting a folder
 * can take a millisecond (ext4 with `discard` and no journal waits for the disk at each), and
 * nobody should wait for fifteen of them.
 *
 * What is found in trash/ at the start was thrown away by an earlier daemon and goes too.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/os/submap.h"

struct delete_queue;

/* Takes the folder's descriptor. */
struct delete_queue *delete_queue_new(int dirfd);
/* From now on what rmtree() alone cannot remove is left to the program behind `shim` (not taken),
 * in a user namespace with these ids. */
void delete_queue_use_subids(struct delete_queue *t, int shim, const struct submap *ids);
/* Does not wait: what is left is for the next daemon. NULL is fine. */
void delete_queue_free(struct delete_queue *t);

/* Fine when there is none of that name. When too much waits for deletion already, or dirfd is
 * another file system, it is deleted before this returns. */
int delete_queue_add(struct delete_queue *t, int dirfd, const char *name, struct err *err);

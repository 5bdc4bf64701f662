/*
 * Deletes folders in the background. A folder is renamed into trash/ at once, so that nobody sees
 * it any more; a thread then deletes it and ends when nothing is left. The deletion of one folder
 * can take a millisecond (ext4 with `discard` and no journal waits for the disk each time), and a
 * removed sandbox has fifteen of them.
 *
 * Folders that an earlier daemon left in trash/ are deleted at the start. Any thread.
 */
#pragma once

#include "lib/base/err.h"
#include "lib/os/submap.h"

struct delete_queue;

/* Takes the folder's descriptor. */
struct delete_queue *delete_queue_new(int dirfd);
/* From now on the program behind `shim` (not taken) removes, in a user namespace with these ids,
 * what rmtree() cannot remove. */
void delete_queue_use_subids(struct delete_queue *t, int shim, const struct submap *ids);
/* Does not wait: the next daemon deletes the rest. NULL is fine. */
void delete_queue_free(struct delete_queue *t);

/* Fine when the name does not exist. When the queue is full, or dirfd is on another file system,
 * the folder is deleted before this returns. */
int delete_queue_add(struct delete_queue *t, int dirfd, const char *name, struct err *err);

/*
 * The cgroups of removed sandboxes, swept up in batches. For the end of a memory cgroup the kernel
 * looks at two lists of every mounted file system on the machine, and each sandbox has a dozen of
 * those: with a thousand sandboxes that is two milliseconds, and nothing once they have gone. So
 * what is left when sandboxes are removed, folders without processes, waits until no more come.
 *
 * Nobody may wait for ever, nor a killed daemon's rest: it carries the root's id, and reconcile
 * finds it.
 */
#pragma once

struct broom;

/* `root_id` is borrowed and outlives it. */
struct broom *broom_new(const char *root_id);
/* Sweeps up what still waits. NULL is fine. */
void broom_free(struct broom *b);

/* The cgroups of a sandbox that has gone. */
void broom_leave(struct broom *b, const char *id);
/* It comes again: on return nobody sweeps there. */
void broom_reclaim(struct broom *b, const char *id);
/* Adds those that wait to *ids. */
void broom_list(struct broom *b, char ***ids);

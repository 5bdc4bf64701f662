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

struct cgroup_reaper;

/* `root_id` is borrowed and outlives it. */
struct cgroup_reaper *cgroup_reaper_new(const char *root_id);
/* Sweeps up what still waits. NULL is fine. */
void cgroup_reaper_free(struct cgroup_reaper *b);

/* The cgroups of a sandbox that has gone. */
void cgroup_reaper_leave(struct cgroup_reaper *b, const char *id);
/* It comes again: on return nobody sweeps there. */
void cgroup_reaper_reclaim(struct cgroup_reaper *b, const char *id);
/* Adds those that wait to *ids. */
void cgroup_reaper_list(struct cgroup_reaper *b, char ***ids);

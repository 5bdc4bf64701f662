/*
 * Removes the cgroups of removed sandboxes, in batches on a thread of its own.
 *
 * When a memory cgroup ends, the kernel walks two lists of every mounted file system on the
 * machine, and each sandbox has a dozen of those mounts. With a thousand sandboxes that takes two
 * milliseconds; once they are gone it takes none. So the empty cgroups of removed sandboxes wait
 * until no more removals come, but only for a limited time.
 *
 * The cgroups that a killed daemon leaves carry the root's id, and reconcile finds them.
 */
#pragma once

struct cgroup_reaper;
struct native_cgroups;

/* `cgroups` is borrowed and outlives the reaper. */
struct cgroup_reaper *cgroup_reaper_new(const struct native_cgroups *cgroups);
/* Removes the cgroups that still wait. NULL is fine. */
void cgroup_reaper_free(struct cgroup_reaper *b);

/* Queues the cgroups of a sandbox that was removed. */
void cgroup_reaper_add(struct cgroup_reaper *b, const char *id);
/* The sandbox starts again: when this returns, its cgroups are not touched any more. */
void cgroup_reaper_reclaim(struct cgroup_reaper *b, const char *id);
/* Adds the ids of the queued sandboxes to *ids. */
void cgroup_reaper_list(struct cgroup_reaper *b, char ***ids);

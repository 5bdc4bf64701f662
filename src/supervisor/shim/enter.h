/*
 * Joining the sandbox's namespaces, from a helper that the shim has forked.
 *
 * With a range of ids this is one setns() with pid 1's pidfd. An ordinary user may not do that: pid
 * 1 is not dumpable, and access to such a process needs rights over the namespace that its memory
 * belongs to, which is the host's. The namespaces themselves belong to that user. So the shim opens
 * them by descriptor while pid 1 is still a plain copy of the shim, and helpers join them one by
 * one.
 */
#pragma once

#include "lib/base/err.h"

struct shim;

/* In the shim, while pid 1 waits for its layers. Does nothing if pid 1's pidfd is enough. */
int enter_open(struct shim *s, struct err *err);
void enter_close(struct shim *s);

/*
 * In the helper; `namespaces` are CLONE_NEW*. *ret_mark, with CLONE_NEWCGROUP: a cgroup namespace
 * of this exec that its processes cannot leave (exec-members.h). It stays -1 if the helper joined
 * the sandbox's cgroup namespace instead.
 */
int enter_sandbox(const struct shim *s, int namespaces, int *ret_mark, struct err *err);

/*
 * The same in two steps, for a helper that starts before pid 1 has built the sandbox. It joins all
 * namespaces except the mounts now, and the mounts later by ns_enter(*ret_mounts). That descriptor
 * stays open as long as the process lives. The helper gets a cgroup namespace of its own, because
 * pid 1 may not have made the sandbox's yet.
 */
int enter_ahead(const struct shim *s, int namespaces, int *ret_mounts, int *ret_mark,
                struct err *err);

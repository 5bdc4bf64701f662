/*
 * Joining the sandbox's namespaces, from a helper that the shim has forked.
 *
 * With a range of ids this is one setns() with pid 1's pidfd. Without CAP_SYS_PTRACE that is not
 * allowed: pid 1 is not dumpable, and access to such a process needs rights over the namespace that
 * its memory belongs to, which is the host's. So an ordinary user, and root of most containers,
 * opens the namespaces by descriptor while pid 1 is still a plain copy of the shim; helpers join
 * them one by one. A machine without cgroups needs that too, for the marks of execs.
 */
#pragma once

#include <stdbool.h>

#include "lib/base/err.h"

struct shim;

/* Whether this sandbox needs descriptors. Its cgroups are open. */
bool enter_by_descriptor(const struct shim *s);
/* In the shim, while pid 1 waits for its layers. Does nothing if pid 1's pidfd is enough. */
int enter_open(struct shim *s, struct err *err);
/* The sandbox's user namespace, or the network's; the caller owns it. */
int enter_open_user(const struct shim *s, int *ret, struct err *err);
int enter_open_network(const struct shim *s, int *ret, struct err *err);
void enter_close(struct shim *s);

/* In a helper: its children will be in the sandbox's pid namespace. */
int enter_pids(const struct shim *s, struct err *err);

/*
 * In the helper; `namespaces` are CLONE_NEW*. *ret_mark, with CLONE_NEWCGROUP: a cgroup namespace
 * of this exec that its processes cannot leave (exec-members.h), for sandboxes without a range of
 * ids; else it stays -1.
 */
int enter_sandbox(const struct shim *s, int namespaces, int *ret_mark, struct err *err);

/*
 * The same in two steps, for a helper that starts before pid 1 has built the sandbox. It joins all
 * namespaces except the mounts now, and the mounts later by ns_enter(*ret_mounts). That descriptor
 * stays open as long as the process lives.
 */
int enter_ahead(const struct shim *s, int namespaces, int *ret_mounts, int *ret_mark,
                struct err *err);

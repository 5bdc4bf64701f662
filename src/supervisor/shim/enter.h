/*
 * Joining the sandbox's namespaces, from a helper that the shim has forked.
 *
 * With a range of ids this is one setns() by pid 1's pidfd. An ordinary user may not do that: pid 1
 * is not dumpable, and looking into such a process takes rights over the namespace that its memory
 * belongs to, which is the host's. The namespaces themselves are ours, though: the shim opens them
 * by descriptor while pid 1 is still its plain copy, and helpers join them one by one.
 */
#pragma once

#include "lib/base/err.h"

struct shim;

/* In the shim, while pid 1 waits for its layers. Does nothing where pid 1's pidfd will do. */
int enter_open(struct shim *s, struct err *err);
void enter_close(struct shim *s);

/*
 * In the helper; `namespaces` are CLONE_NEW*. *ret_mark, when asked for with CLONE_NEWCGROUP: a
 * cgroup namespace of this exec's own that its processes cannot leave (exec-members.h); -1 where
 * the sandbox's was joined instead.
 */
int enter_sandbox(const struct shim *s, int namespaces, int *ret_mark, struct err *err);

/*
 * The same in two steps, for a helper that is there before pid 1 has built the sandbox: all but the
 * mounts now, those later by ns_enter() of *ret_mounts, which is for the process's whole life. The
 * cgroup namespace is one of its own: whether pid 1 has made its yet is not known.
 */
int enter_ahead(const struct shim *s, int namespaces, int *ret_mounts, int *ret_mark,
                struct err *err);

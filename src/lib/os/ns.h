/*
 * Namespaces: clone3, setns and id maps. For single-threaded processes only: the child of a raw
 * clone3 inherits all locks in their current state.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include "lib/base/err.h"

/*
 * fork() with clone3: returns twice, 0 in the child. `flags` are CLONE_*; with cgroup_fd >= 0 the
 * child starts in that cgroup (v2). *ret_pidfd may be NULL. With CLONE_PARENT the new process is
 * the caller's sibling. -errno on failure.
 */
pid_t ns_clone(uint64_t flags, int cgroup_fd, int *ret_pidfd);

/* Joins the namespaces `flags` of the process behind pidfd, all at once. */
int ns_enter(int pidfd, int flags, struct err *err);

/* One line of a map: `count` ids from `inner` inside are `outer` outside. */
struct ns_map {
    uint32_t inner, outer, count;
    const struct ns_map *next; /* borrowed; NULL: the last line */
};

/* Writes uid_map and gid_map of a child that waits in a fresh user namespace. `deny_setgroups` is
 * for callers without CAP_SETGID outside. */
int ns_write_maps(pid_t pid, const struct ns_map *uid, const struct ns_map *gid,
                  bool deny_setgroups, struct err *err);

/* A descriptor of a process's user namespace. */
int ns_open_user(pid_t pid, int *ret, struct err *err);

/* Brings up `lo` in the caller's network namespace. */
int ns_loopback_up(struct err *err);

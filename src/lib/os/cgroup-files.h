/*
 * Reading and writing cgroup control files; for the cgroup*.c files, and the guest that reads those
 * of its container.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/os/cgroup.h"

extern const struct cgroup_ops cgroup_v1_ops, cgroup_v2_ops;

/* 0 or -errno; -EBADF for a folder that is not there (-1). */
int cgroup_write(int dirfd, const char *file, const char *text);
int cgroup_write_u64(int dirfd, const char *file, uint64_t v);
/* False when it cannot be read or holds no number ("max"). `key`: the number behind it in a file of
 * "key number" lines; NULL: the file's one number. */
bool cgroup_find(int dirfd, const char *file, const char *key, uint64_t *ret);
/* Until cgroup.events says that a group is (not) frozen: 0 or -errno, -ETIMEDOUT after a while. */
int cgroup_await_events(int dirfd, bool frozen);
/* The same, with 0 for what cannot be read. */
uint64_t cgroup_read_u64(int dirfd, const char *file);
uint64_t cgroup_read_key(int dirfd, const char *file, const char *key);

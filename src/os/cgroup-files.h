/*
 * Reading and writing cgroup control files; for the cgroup*.c files only.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "os/cgroup.h"

extern const struct cgroup_ops cgroup_v1_ops, cgroup_v2_ops;

/* 0 or -errno; -EBADF for a folder that is not there (-1). */
int cgroup_write(int dirfd, const char *file, const char *text);
int cgroup_write_u64(int dirfd, const char *file, uint64_t v);
/* 0 when it cannot be read, or says "max". */
uint64_t cgroup_read_u64(int dirfd, const char *file);
/* The number behind `key` in a file of "key number" lines, or 0. */
uint64_t cgroup_read_key(int dirfd, const char *file, const char *key);

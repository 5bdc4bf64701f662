/*
 * Reads and writes cgroup control files, for the cgroup*.c files and for the guest, which reads
 * those of its container.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/os/cgroup.h"

extern const struct cgroup_ops cgroup_v1_ops, cgroup_v2_ops;

/* Limits the memory of IP sockets in a v1 group to the share of a memory limit; 0 or -errno. */
int cgroup_v1_limit_sockets(int dirfd, uint64_t memory);

/* 0 or -errno; -EBADF when dirfd is -1. */
int cgroup_write(int dirfd, const char *file, const char *text);
int cgroup_write_u64(int dirfd, const char *file, uint64_t v);
/* Reads the number after `key` in a file of "key number" lines; key NULL: the only number of the
 * file. False: the file cannot be read, or the value is not a number ("max"). */
bool cgroup_find(int dirfd, const char *file, const char *key, uint64_t *ret);
/* Waits until cgroup.events shows that a group is (not) frozen: 0 or -errno, or -ETIMEDOUT. */
int cgroup_await_events(int dirfd, bool frozen);
/* Like cgroup_find(); a value that cannot be read is 0. */
uint64_t cgroup_read_u64(int dirfd, const char *file);
uint64_t cgroup_read_key(int dirfd, const char *file, const char *key);
/* Whether a file of words separated by spaces has this word. */
bool cgroup_has_word(int dirfd, const char *file, const char *word);

/* The root of the machine's v2 tree: unlike all other folders it may hold processes and hand down
 * controllers. */
bool cgroup_is_real_root(int dirfd);

/* The controllers that we use and that a v2 folder can hand down: "+memory +cpu +pids", or less.
 * Returns the missing ones as bits of enum limit_bit. */
enum { CGROUP_CONTROLLERS_MAX = 32 };
uint32_t cgroup_controllers(int dirfd, char ret[static CGROUP_CONTROLLERS_MAX]);

/*
 * The table of lib/os/seccomp-table.h as a seccomp filter.
 *
 * The filter is a tree over ranges of call numbers with the same verdict, which the kernel walks
 * when it is installed (for each number there is, to know those that are always allowed) and at
 * each call: small and shallow, as both lie on the way of every exec.
 */
#pragma once

#include <linux/filter.h>
#include <stddef.h>

#include "lib/base/err.h"

enum { SECCOMP_FILTER_MAX = 1024 }; /* instructions; the kernel takes 4096 */

/* A new array, for the caller to free, of *ret_n instructions. The same every time. */
struct sock_filter *seccomp_filter_compile(size_t *ret_n);

/* Whether this kernel takes filters at all. */
int seccomp_filter_possible(struct err *err);

/* For the calling thread and its children. No new privileges must be set before. */
int seccomp_filter_install(const void *filter, size_t bytes, struct err *err);

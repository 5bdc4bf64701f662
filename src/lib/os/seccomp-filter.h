/*
 * Compiles the table of lib/os/seccomp-table.h into the seccomp filter of a sandbox, and installs
 * it.
 *
 * The filter is a search tree over ranges of call numbers with the same verdict. The kernel runs it
 * once per call number at installation, to find the calls that are always allowed, and then at each
 * call. Both are part of every exec, so the tree is small and shallow.
 */
#pragma once

#include <linux/filter.h>
#include <stddef.h>

#include "lib/base/err.h"
#include "lib/os/seccomp-table.h"

enum { SECCOMP_FILTER_MAX = 1024 }; /* instructions; the kernel takes 4096 */

/* A malloc'd array of *ret_n instructions. The result is the same every time. */
struct sock_filter *seccomp_filter_compile(enum seccomp_variant variant, size_t *ret_n);

/* Fails when this kernel does not support filters. */
int seccomp_filter_possible(struct err *err);

/* Installs it for the calling thread and its children. no_new_privs must be set before. */
int seccomp_filter_install(const void *filter, size_t bytes, struct err *err);

/*
 * A second filter, for the commands of a sandbox without namespaces
 * (docs/decisions/033-confined.md). It lies over the filter of every sandbox
 * (lib/os/seccomp-filter.h), and the kernel takes the stricter verdict of the two. It refuses what
 * the other one allows because namespaces contain it: other sockets than TCP, shared memory and
 * queues of the machine, settings of other processes.
 *
 * A few calls are not decided here: the kernel suspends the caller and reports the call through a
 * descriptor, and the process that reads it gives the result (seccomp_unotify(2)).
 */
#pragma once

#include <linux/filter.h>
#include <stdbool.h>
#include <stddef.h>

#include "lib/base/err.h"

enum { SECCOMP_CONFINED_MAX = 512 }; /* instructions */

/*
 * Fills `f` and returns the number of instructions. With `same_user` the commands have the user id
 * of other processes outside: calls that change modes, owners and times of files are reported,
 * those that set attributes or watch folders are refused.
 */
size_t seccomp_confined_compile(bool same_user, struct sock_filter f[static SECCOMP_CONFINED_MAX]);

/* Installs a filter for the calling thread and its children. *ret: where calls are reported.
 * no_new_privs must be set before. ERR_UNSUPPORTED: a filter that reports calls is installed
 * already, perhaps by the container that we are in; the kernel allows one. */
int seccomp_confined_install(bool same_user, int *ret, struct err *err);

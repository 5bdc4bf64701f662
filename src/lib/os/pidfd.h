/*
 * Processes by descriptor. A remembered pid may belong to another process by now.
 */
#pragma once

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "lib/base/err.h"

int pidfd_open_pid(pid_t pid, int *ret, struct err *err); /* O_CLOEXEC */
/* 0 or -errno; -ESRCH when it has ended. */
int pidfd_signal(int pidfd, int sig);
/* Whether `name` occurs in the cgroups of the process. The pid that an engine reports may be one of
 * its own virtual machine. But every engine names the cgroup of a container after its id, so the
 * cgroup proves the process. A name with less than 32 characters never matches. */
bool pidfd_in_cgroup(int pidfd, pid_t pid, const char *name);
/* Reaps a child: 1 and *status as of waitpid(2) and *usage (may be NULL), 0 when it still runs and
 * `block` is false, or -errno. */
int pidfd_reap(int pidfd, bool block, int *status, struct rusage *usage);

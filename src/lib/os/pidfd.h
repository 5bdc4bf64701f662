/*
 * Processes by descriptor: never by a remembered pid, which may belong to a stranger by now.
 */
#pragma once

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "lib/base/err.h"

int pidfd_open_pid(pid_t pid, int *ret, struct err *err); /* O_CLOEXEC */
/* 0 or -errno; -ESRCH when it has ended. */
int pidfd_signal(int pidfd, int sig);
/* Whether that process carries `name` in its cgroups: what an engine calls the pid of a container
 * is a number of the engine's own machine, which may be a virtual one, but every engine names the
 * container's cgroup after its id. A name of less than 32 characters could be part of anything. */
bool pidfd_in_cgroup(int pidfd, pid_t pid, const char *name);
/* Reaps a child: 1 and *status as of waitpid(2) and *usage (may be NULL), 0 when it still runs and
 * `block` is false, or -errno. */
int pidfd_reap(int pidfd, bool block, int *status, struct rusage *usage);

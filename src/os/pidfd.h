/*
 * Processes by descriptor: never by a remembered pid, which may belong to a stranger by now.
 */
#pragma once

#include <stdbool.h>
#include <sys/resource.h>
#include <sys/types.h>

#include "base/err.h"

int pidfd_open_pid(pid_t pid, int *ret, struct err *err); /* O_CLOEXEC */
/* 0 or -errno; -ESRCH when it has ended. */
int pidfd_signal(int pidfd, int sig);
/* Reaps a child: 1 and *status as of waitpid(2) and *usage (may be NULL), 0 when it still runs and
 * `block` is false, or -errno. */
int pidfd_reap(int pidfd, bool block, int *status, struct rusage *usage);

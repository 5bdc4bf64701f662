/*
 * Landlock for helpers that enter a sandbox, and for the commands of a strict one: a second wall
 * behind namespaces and seccomp, where the kernel has it. It holds even when a descriptor of the
 * host has been left open, or a mount has gone wrong: what does not lie below the one folder cannot
 * be opened by any way.
 *
 * Not for commands in general: each exec is a domain of its own, and a process of one can no longer
 * look at one of another (lsof, fuser, gdb -p, even /proc/PID/fd): docs/decisions/018-landlock.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

/*
 * From here on the calling thread opens files only below `root` (NULL: none at all), connects only
 * to TCP port `port` (0: none), and reaches no abstract socket and no process outside. Sets
 * no-new-privileges. 1: done, as far as this kernel can; 0: it has no Landlock.
 */
int landlock_confine(const char *root, uint16_t port, struct err *err);

/* The same for a command: files below `root` alone, no abstract socket and no process outside; TCP
 * is left to its network namespace. No Landlock is an error: ERR_UNSUPPORTED. */
int landlock_domain(const char *root, struct err *err);
bool landlock_possible(void);

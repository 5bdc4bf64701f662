/*
 * Landlock for helpers that enter a sandbox, and for the commands of a strict sandbox: a second
 * guard behind namespaces and seccomp, if the kernel supports it. It still holds when a descriptor
 * of the host was left open or a mount is wrong: only files below one folder can be opened.
 *
 * Commands of a shared sandbox do not use it. Each exec would be a domain of its own, and tools
 * could not inspect processes of other execs (lsof, fuser, gdb -p): docs/decisions/018-landlock.md.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"

/*
 * Afterwards the calling thread can open files only below `root` (NULL: no files), connect only to
 * TCP port `port` (0: no port), and reach no abstract socket and no process outside. Sets
 * no-new-privileges. 1: done, as far as this kernel supports it; 0: no Landlock.
 */
int landlock_confine(const char *root, uint16_t port, struct err *err);

/* The same for a command, without the limit on TCP: its network namespace has that part. Without
 * Landlock it fails with ERR_UNSUPPORTED. */
int landlock_domain(const char *root, struct err *err);
bool landlock_possible(void);

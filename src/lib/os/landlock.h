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

/*
 * A ruleset that the caller fills: nothing can be opened, bound or connected to that no rule
 * allows, and no signal and no abstract socket leaves the domain. For commands that no namespace
 * contains (docs/decisions/033-confined.md). Needs ABI 6, the first with those scopes; fails with
 * ERR_UNSUPPORTED and a hint before it.
 */
enum landlock_kind {
    LANDLOCK_READ,      /* read and execute */
    LANDLOCK_WRITE,     /* everything but device nodes */
    LANDLOCK_DEVICE,    /* read, write, ioctl */
    LANDLOCK_OWN_FILES, /* make, read, write and remove files, without listing the folder */
};

bool landlock_has_scopes(void);
int landlock_rules_open(int *ret, struct err *err); /* O_CLOEXEC */
/* A path that does not exist here adds nothing. */
int landlock_rules_add(int rules, const char *path, enum landlock_kind kind, struct err *err);
int landlock_rules_add_fd(int rules, int fd, enum landlock_kind kind, struct err *err);
/* TCP: connect, and with `listen` also bind. Port 0: bind to a port that the kernel chooses. */
int landlock_rules_add_port(int rules, uint16_t port, bool listen, struct err *err);
/* For the calling thread and its children, for good. Sets no-new-privileges. */
int landlock_rules_enter(int rules, struct err *err);

/* A domain with the two scopes only: its processes may send signals to each other and to processes
 * of nested domains, and to no others. */
int landlock_scopes(struct err *err);

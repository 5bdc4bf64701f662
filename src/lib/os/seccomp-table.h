/*
 * The system calls of a sandbox: one table that says for each call what a process inside may do
 * with it. The native engine compiles it into a filter (lib/os/seccomp-filter.h); the Docker engine
 * writes it out as a profile (daemon/engine/docker/profile.h). What is not in the table does not
 * exist inside: ENOSYS, which a libc takes as "an older kernel" and falls back. What programs know
 * to be a matter of rights is refused with EPERM.
 *
 * The table is constant; any thread may read it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum seccomp_verdict {
    CALL_ALLOW,
    CALL_REFUSE, /* with `errnum` */
    CALL_ARGS,   /* allowed or not by one argument: `rule` */
    CALL_SOCKET, /* socket(2): family and protocol, see call_sockets() */
};

enum seccomp_test {
    CALL_NO_BITS, /* allowed when none of the bits values[0] is set */
    CALL_NONE_OF, /* allowed unless it is one of the values */
    CALL_ONE_OF,  /* allowed when it is one of the values */
};

enum { CALL_VALUES_MAX = 8 };

/* Only the low word of an argument counts: the kernel takes these as 32 bits, whatever else is in
 * the register (CVE-2019-10063). */
struct seccomp_rule {
    unsigned arg;
    enum seccomp_test test;
    int errnum;
    uint32_t values[CALL_VALUES_MAX];
    size_t n;
};

struct seccomp_call {
    const char *name;
    int nr; /* on this architecture; -1: it has no such call */
    enum seccomp_verdict verdict;
    int errnum;
    const struct seccomp_rule *rule;
};

/* NULL after the last. */
const struct seccomp_call *seccomp_call_at(size_t i);

/* A family that socket(2) takes, with its protocols; none listed: any. */
struct seccomp_socket {
    uint32_t family;
    uint32_t protocols[CALL_VALUES_MAX];
    size_t n;
};

const struct seccomp_socket *seccomp_socket_at(size_t i);

/*
 * The seccomp table: which system calls a process in a sandbox may use, and with which arguments.
 * The native engine compiles it into a filter (lib/os/seccomp-filter.h); the Docker engine writes
 * it as a profile (daemon/engine/docker/profile.h). Calls that are not in the table fail with
 * ENOSYS: libc takes that for an older kernel and falls back. Calls that programs expect to need
 * privileges fail with EPERM.
 *
 * The table is constant; any thread may read it.
 */
#pragma once

#include <stddef.h>
#include <stdint.h>

enum seccomp_verdict {
    CALL_ALLOW,
    CALL_REFUSE, /* fails with `errnum` */
    CALL_ARGS,   /* decided by one argument: `rule` */
    CALL_SOCKET, /* socket(2): decided by seccomp_socket_at() */
};

enum seccomp_test {
    CALL_NO_BITS, /* allowed when none of the bits values[0] is set */
    CALL_NONE_OF, /* allowed unless it is one of the values */
    CALL_ONE_OF,  /* allowed when it is one of the values */
};

enum { CALL_VALUES_MAX = 8 };

/* Only the low 32 bits of an argument are compared: the kernel ignores the rest of the register
 * (CVE-2019-10063). */
struct seccomp_rule {
    unsigned arg;
    enum seccomp_test test;
    int errnum;
    uint32_t values[CALL_VALUES_MAX];
    size_t n;
    /* CALL_NO_BITS: the rule counts only if argument `if_arg` has one of these bits; 0: always. */
    unsigned if_arg;
    uint32_t if_bits;
};

struct seccomp_call {
    const char *name;
    int nr; /* on this architecture; -1: the call does not exist */
    enum seccomp_verdict verdict;
    int errnum;
    const struct seccomp_rule *rule;
};

/*
 * There are two filters. A sandbox that may write to a folder of the host must not leave set-id
 * files there: they would run with the rights of their owner outside. Without such a folder these
 * bits have no effect (nosuid, no-new-privileges), and package managers need them.
 */
enum seccomp_variant {
    SECCOMP_SET_ID,    /* set-id bits are allowed */
    SECCOMP_NO_SET_ID, /* no call can set them */
    SECCOMP_VARIANTS
};

/* The i-th call of the table; NULL after the last. */
const struct seccomp_call *seccomp_call_at(enum seccomp_variant variant, size_t i);

/* An allowed socket family with its allowed protocols; n 0: all protocols. */
struct seccomp_socket {
    uint32_t family;
    uint32_t protocols[CALL_VALUES_MAX];
    size_t n;
};

const struct seccomp_socket *seccomp_socket_at(size_t i);

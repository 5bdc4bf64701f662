/*
 * The plan: what the daemon tells a relay (ripcord-relay, the supervisor of one running Docker
 * sandbox) when it starts it, as one JSON object in a sealed memfd.
 *
 * Starting one. The container is running already, with /.ripcord/guest in it. The daemon
 * posix_spawns `ripcord-relay SANDBOX-ID` as it does a shim: own session, empty environment, all
 * signals at their default, stdin and stdout /dev/null, stderr the log in run_dir, one end of a
 * SOCK_SEQPACKET pair as SUP_FD_CONTROL, the plan as SUP_FD_PLAN. The relay then makes
 * SUP_SOCKET in run_dir, looks at the container and says HELLO and READY on the control socket, or
 * FAILED and ends (daemon/engine/handshake.h). From there on it speaks proto/supervisor.h and
 * outlives the daemon. It makes nothing else in run_dir but the porter's socket
 * (supervisor/relay/relay.h); an exec's journals go to exec_dir/<exec id>/. Both folders are the
 * daemon's (0700, made before).
 *
 * Its end (the socket closes) says that the container does not run any more, or cannot be reached.
 * It stops the container on STOP; it never removes it: that is engine cleanup's.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/err.h"
#include "lib/base/limits.h"

enum { RELAY_PLAN_MAX = 4 << 20, RELAY_PLAN_ENV_MAX = 1024 };

/* Strings are owned (relay_plan_done). */
struct relay_plan {
    char *sandbox_id; /* 16 hex digits */
    char *name;       /* of the sandbox, for people */
    char *hash;       /* config hash, "" when none; told back in HELLO */

    char *endpoint;  /* docker_endpoint_text() */
    char *container; /* the engine's id of it, not the name */

    char *run_dir, *exec_dir; /* absolute */

    char *user;    /* inside: name, uid or uid:gid */
    char *workdir; /* absolute inside */
    char **env;    /* the whole environment of an exec but for its own additions */

    uint64_t memory;     /* bytes; 0: no limit. For messages and records: the engine enforces it */
    uint32_t pids;       /* same */
    uint32_t unenforced; /* enum limit_bit bits, told back in HELLO */
    uint32_t packages_port;  /* on 127.0.0.1 inside; 0: it has no way to the package registry */
    bool packages_inside;    /* its network is not of this machine: the guest is to listen there */
    uint64_t journal_budget; /* bytes per stream; 0: unlimited */
    bool ephemeral;          /* ends by itself when its first exec has ended */
};

#define RELAY_PLAN_INIT                                                                            \
    {                                                                                              \
        0                                                                                          \
    }

void relay_plan_done(struct relay_plan *p);

/* Checks the plan and puts it into a new sealed memfd (O_CLOEXEC, offset 0), owned by the caller.
 */
int relay_plan_write(const struct relay_plan *p, int *ret_fd, struct err *err);
/* Reads and checks; the descriptor stays open. *ret is untouched on failure. */
int relay_plan_read(int fd, struct relay_plan *ret, struct err *err);

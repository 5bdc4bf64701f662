/*
 * The relay plan: the daemon's settings for a relay (ripcord-relay, the supervisor of one running
 * Docker sandbox), as one JSON object in a sealed memfd.
 *
 * Start. The container already runs, with /.ripcord/guest in it. The daemon starts `ripcord-relay
 * SANDBOX-ID` with posix_spawn, as it starts a shim: own session, empty environment, default
 * signals, stdin and stdout /dev/null, stderr the log in run_dir, one end of a SOCK_SEQPACKET pair
 * as SUP_FD_CONTROL, the plan as SUP_FD_PLAN. The relay makes SUP_SOCKET in run_dir, inspects the
 * container, and sends HELLO and READY on the control socket, or FAILED and ends
 * (daemon/engine/handshake.h). From then on it speaks proto/supervisor.h and outlives the daemon.
 * Its only other file in run_dir is the socket of the packages tunnel (supervisor/relay/relay.h).
 * An exec's journals go to exec_dir/<exec id>/. The daemon has made both folders (0700).
 *
 * End. When the relay closes its socket, the container no longer runs or cannot be reached. The
 * relay stops the container on STOP. It never removes it; the engine's cleanup does.
 */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "lib/base/command-size.h"
#include "lib/base/err.h"
#include "lib/base/limits.h"

/* JSON writes some bytes of a variable as six. */
enum { RELAY_PLAN_MAX = 6 * COMMAND_MAX + (1 << 20) };

/* Strings are owned (relay_plan_done). */
struct relay_plan {
    char *sandbox_id; /* 16 hex digits */
    char *name;       /* of the sandbox, for people */
    char *hash;       /* config hash, or ""; HELLO returns it */

    char *endpoint;  /* docker_endpoint_text() */
    char *container; /* the engine's id, not the name */

    char *run_dir, *exec_dir; /* absolute */

    char *user;    /* inside: name, uid or uid:gid */
    char *workdir; /* absolute inside */
    char **env;    /* the environment of every exec; an exec may add to it */

    uint64_t memory;     /* bytes; 0: no limit. For messages and records: the engine enforces it */
    uint32_t pids;       /* same */
    uint32_t unenforced; /* enum limit_bit bits; HELLO returns them */
    uint32_t packages_port;  /* of the package cache, on 127.0.0.1 inside; 0: no package cache */
    bool packages_inside;    /* the network is on another machine: the guest must listen there */
    bool own_kernel;         /* the runtime has one (gVisor, Kata) inside the container's limits */
    uint64_t journal_budget; /* bytes per stream; 0: unlimited */
    bool ephemeral;          /* the sandbox stops when its first exec has ended */
};

#define RELAY_PLAN_INIT                                                                            \
    {                                                                                              \
        0                                                                                          \
    }

void relay_plan_done(struct relay_plan *p);

/* Checks the plan and writes it to a new sealed memfd (O_CLOEXEC, offset 0), owned by the
 * caller. */
int relay_plan_write(const struct relay_plan *p, int *ret_fd, struct err *err);
/* Reads and checks; the descriptor stays open. *ret is untouched on failure. */
int relay_plan_read(int fd, struct relay_plan *ret, struct err *err);

/*
 * An ssh agent for RUN --mount=type=ssh. The command's sandbox mounts a listening socket in the
 * workspace; behind it a process of ours relays to the agent (agent-relay.h). The agent's own
 * socket is never mounted. The relay runs as the agent's user without any privilege. It ends with
 * the step, or with us.
 */
#pragma once

#include <sys/types.h>

#include "image/build/workspace.h"
#include "image/dockerfile/mount.h"
#include "lib/base/err.h"

/* The id of the agent that a mount uses. */
const char *agent_id(const struct dockerfile_mount *m);
/* Connects once, so that a missing agent is reported before the build begins. */
int agent_check(const char *id, const char *path, struct err *err);

/*
 * m: gives the owner and mode of the socket in the sandbox. path: the agent's socket. *ret_source:
 * the new socket, below the store's folder; the caller frees it. *ret: for agent_end().
 */
int agent_start(struct workspace *w, const struct dockerfile_mount *m, const char *path,
                char **ret_source, pid_t *ret, struct err *err);
void agent_end(pid_t pid);

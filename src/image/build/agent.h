/*
 * An ssh agent for a RUN --mount=type=ssh: a listening socket in the build's folder, which the
 * command's sandbox has mounted, and behind it a process of ours that relays to the agent
 * (agent-relay.h). The agent's own socket is never mounted. That process is the agent's user with
 * no privilege of any kind, and ends with the step, or with us.
 */
#pragma once

#include <sys/types.h>

#include "image/build/workspace.h"
#include "image/dockerfile/mount.h"
#include "lib/base/err.h"

/* Which one a mount is of. */
const char *agent_id(const struct dockerfile_mount *m);
/* Whether somebody listens there. */
int agent_check(const char *id, const char *path, struct err *err);

/* m: whose it is in the command's sandbox. *ret_source: the socket, below the store's folder, new;
 * *ret: for agent_end(). */
int agent_start(struct workspace *w, const struct dockerfile_mount *m, const char *path, char **ret_source,
                pid_t *ret, struct err *err);
void agent_end(pid_t pid);

/*
 * Between a command of a build and an ssh agent of whoever asked for the build: connections to a
 * listening socket are carried to the agent's, message by message. A command may have keys listed
 * and use them, as BuildKit lets it; whatever would change the agent (keys that come and go, locks,
 * libraries that it is to load) is answered with a failure here and never reaches it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "base/macro.h"

enum {
    AGENT_MESSAGE_MAX = 256 << 10, /* of ssh-agent(1) itself: AGENT_MAX_LEN */
    AGENT_LINES_MAX = 16,          /* at once; others wait */
};

/* A message's bytes behind its length: whether it is passed on. */
bool agent_may_ask(const void *message, size_t len);

/* A new connection, which does not block, or -errno. agent: its socket, a name in the working
 * folder. */
int agent_dial(const char *agent);

/* Ends when the listening socket fails. */
void agent_relay(int listener, const char *agent);

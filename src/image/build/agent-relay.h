/*
 * Between a command of a build and an ssh agent of whoever asked for the build: connections to a
 * listening socket are carried to the agent's, message by message. A command may have keys listed
 * and use them, as BuildKit lets it; whatever would change the agent (keys that come and go, locks,
 * libraries that it is to load) is answered with a failure here and never reaches it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/macro.h"

enum {
    AGENT_MESSAGE_MAX = 256 << 10, /* of ssh-agent(1) itself: AGENT_MAX_LEN */
    AGENT_CONNS_MAX = 16,          /* at once; others wait */
};

/* A message's bytes behind its length: whether it is passed on. */
bool agent_may_ask(const void *message, size_t len);

/* One connection of a command's and the one to the agent that belongs to it; neither blocks. */
struct agent_conn {
    int client, agent; /* owned */
    int phase;         /* whose turn it is: agent-relay.c */
    char *message;     /* owned: the one that is under way */
    size_t len;        /* of it, read so far, or written */
    size_t whole;      /* of its length alone until that is known */
};

void agent_conn_init(struct agent_conn *l, int client, int agent);
void agent_conn_done(struct agent_conn *l);
/* Reads or writes once. False: it is over, be it that somebody has gone, be it for a length that
 * cannot be. */
bool agent_conn_step(struct agent_conn *l);

/* A new connection, which does not block, or -errno. agent: its socket, a name in the working
 * folder. */
int agent_dial(const char *agent);

/* Ends when the listening socket fails. */
void agent_relay(int listener, const char *agent);

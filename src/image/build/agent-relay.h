/*
 * Relays connections of a build's commands to an ssh agent of the user who started the build,
 * message by message. A command may list keys and sign with them, as in BuildKit. Requests that
 * would change the agent (add or remove keys, lock it, load libraries) get the answer "failure" and
 * never reach it.
 */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "lib/base/macro.h"

enum {
    AGENT_MESSAGE_MAX = 256 << 10, /* the limit of ssh-agent(1): AGENT_MAX_LEN */
    AGENT_CONNS_MAX = 16,          /* at once; further connections wait */
};

/* Whether a message may pass. message: its bytes without the length in front. */
bool agent_may_ask(const void *message, size_t len);

/* A command's connection with its own connection to the agent. Neither blocks. */
struct agent_conn {
    int client, agent; /* owned */
    int phase;         /* enum agent_phase of agent-relay.c */
    char *message;     /* owned: the current message */
    size_t len;        /* bytes of the message read or written so far */
    size_t whole;      /* its size; the size of its length field until that is read */
};

void agent_conn_init(struct agent_conn *c, int client, int agent);
void agent_conn_done(struct agent_conn *c);
/* Reads or writes once. False: the connection has ended, or a length is not valid. */
bool agent_conn_step(struct agent_conn *c);

/* Connects to the agent. Returns a nonblocking descriptor, or -errno. agent: the name of its socket
 * in the working folder. */
int agent_dial(const char *agent);

/* Serves connections until the listening socket fails. */
void agent_relay(int listener, const char *agent);
